import { capabilitiesAt } from '../../catalog/merge.ts';
import { GatewayError } from '../../errors.ts';
import {
  type InputRequest,
  inputRequiredResult,
  readRetry,
  type Retry,
  withRetry,
} from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { type HeaderLookup, paramHeaderFault } from '../../protocol/framing/mcp-headers.ts';
import { isAnonymous } from '../../policy/principal.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { TASK_METHODS } from '../../protocol/tasks.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { ClientGroup, type ClientGroups } from '../clients/client-group.ts';
import { type ResultTranslator, toolFailure, upgradedAnswer } from '../forward/result-translator.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import type { CallOutcome } from '../calls/call-outcome.ts';
import type { Calls } from '../calls/calls.ts';
import type { UrlElicitations } from '../questions/url-elicitations.ts';
import type { ModernCaller, ModernSink, Owner } from '../front.ts';
import { SubscriptionStream, readFilter } from './subscription-stream.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { LISTS, type ListAnswers } from '../forward/list-answers.ts';
import { assertDeclaresTasks } from '../dialects/client-dialect.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import { OpenExchange } from '../exchange/open-exchange.ts';
import { InputRounds } from '../exchange/input-rounds.ts';
import type { Owners } from '../exchange/owners.ts';
import type { RequestRecorder } from '../exchange/request-recorder.ts';
import type { ParkedCalls } from '../questions/parked-calls.ts';
import type { Upstreams } from '../exchange/connection-holder.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import { noToolsNote, resolve } from '../calls/resolve.ts';
import type { Lifecycle } from '../../upstream/lifecycle.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { Sealer } from '../handles/sealer.ts';
import { type RequestState, sealState, unsealState } from '../handles/request-state.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import { TaskSubscriptions } from '../tasks/task-subscriptions.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { ModernClient } from '../clients/modern-client.ts';
import { type ModernRequestHost, ModernRequest } from './modern-request.ts';

export interface ModernRequestsParts {
  readonly groups: ClientGroups;
  readonly upstreams: Upstreams;
  readonly calls: Calls;
  readonly tasks: Tasks;
  readonly taskIds: TaskIds;
  readonly parked: ParkedCalls;
  readonly listRefresher: ListRefresher;
  readonly links: HolderLinks;
  readonly lists: ListAnswers;
  readonly translator: ResultTranslator;
  readonly sealer: Sealer;
  readonly questionPolicy: QuestionPolicy;
  readonly urlElicitations: UrlElicitations;
  readonly inFlightPerSession: number;
  readonly owners: Owners;
  readonly recorder: RequestRecorder;
}

/** The lifetime of a `requestState` that no parked call belongs to. A user may need that long to answer. */
const STATE_MS = 3_600_000;

/** The time for an upstream to report that the user has done what a URL was opened for. */
const VISIT_MS = 20_000;

/** Answers the requests of modern clients, each of which is independent of the others. */
export class ModernRequests implements ModernRequestHost {
  readonly #parts: ModernRequestsParts;

  constructor(parts: ModernRequestsParts) {
    this.#parts = parts;
  }

  readonly #lifecycleOf = (upstream: string): Lifecycle | undefined => this.#parts.upstreams.get(upstream)?.lifecycle;

  /** Begins to answer a request. Every failure is an answer. */
  request(request: Request, caller: ModernCaller, sink: ModernSink, lookup: HeaderLookup | undefined): ModernRequest {
    const span = this.#parts.recorder.begin(request, lookup);
    const modernRequest = new ModernRequest(this, request, caller, sink, lookup, span);
    modernRequest.follow(this.#begin(modernRequest));
    return modernRequest;
  }

  async #begin(modernRequest: ModernRequest): Promise<Answer> {
    const { caller, sink } = modernRequest;
    const group = await this.#parts.groups.groupFor(caller, sink.receivedMs);
    modernRequest.group = group;
    return await this.#answer(modernRequest, group);
  }

  finish(modernRequest: ModernRequest, answer: Answer): void {
    const { caller, group, request, exchange, sink, span } = modernRequest;
    modernRequest.release();
    try {
      this.#parts.recorder.end(caller, group, request, exchange, answer, performance.now() - sink.receivedMs, span);
    } catch (thrown) {
      // The client gets its answer even if it cannot be recorded.
      this.#parts.recorder.fail(thrown, request.method, span);
    }
    sink.answer(answer);
  }

  toFailure({ request, span }: ModernRequest, thrown: unknown): Answer {
    return upgradedAnswer(this.#parts.recorder.fail(thrown, request.method, span));
  }

  #answer(modernRequest: ModernRequest, group: ClientGroup): Answer | Promise<Answer> {
    const { request, caller } = modernRequest;
    const { method, params } = request;
    const { listRefresher, lists } = this.#parts;
    const canBeAsked = group.capabilityKey !== '';
    const rounds = canBeAsked ? new InputRounds(params?.object('inputResponses')) : undefined;
    const modernClient = new ModernClient(caller, group, caller.logLevel, rounds);
    const list = LISTS.get(method);
    if (list !== undefined) return lists.answer(group, list, request);
    if (TASK_METHODS.has(method)) return this.#runTask(modernRequest, modernClient);
    switch (method) {
      case 'tools/call':
      case 'prompts/get':
      case 'resources/read':
      case 'completion/complete':
        return this.#route(modernRequest, modernClient);
      case 'server/discover':
        return listRefresher
          .beginFirstLists(caller.view, { era: 'modern', principal: group.principal, ...NO_FEATURES })
          .then(() => {
            listRefresher.bringUpToDate(group);
            return this.#discover(group);
          });
      case 'subscriptions/listen':
        return this.#listen(modernRequest, modernClient);
      default:
        throw new GatewayError('method-not-found', { message: method });
    }
  }

  async #listen(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    const { caller, sink } = modernRequest;
    const { id, method, params } = modernRequest.request;
    const { group } = modernClient;
    const { kinds, uris, taskIds } = readFilter(params);
    if (taskIds.length > 0) assertDeclaresTasks(caller.capabilities, method);
    await this.#parts.listRefresher.refreshFor(group);
    const { links, tasks, taskIds: ids } = this.#parts;
    const taskSubscriptions = new TaskSubscriptions({ ids, links, tasks }, modernClient);
    const stream = new SubscriptionStream(id, sink, group, links, kinds, taskSubscriptions);
    modernRequest.attachStream(stream);
    return this.#stamp(group, method, await stream.run(uris, taskIds));
  }

  async #runTask(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    const { group } = modernClient;
    const exchange = new OpenExchange(modernClient, group, modernRequest.request, modernRequest.sink);
    // The group does not list this exchange, since a question of an upstream is never about a task request.
    modernRequest.bind(exchange);
    this.#countIn(modernRequest, group);
    const outcome = await this.#parts.tasks.request(exchange);
    return outcome.kind === 'elsewhere' ? await this.#delegate(modernRequest, outcome.owner) : outcome;
  }

  #discover({ catalog, caller, dialect }: ClientGroup): Answer {
    const { capabilities, tools, view } = catalog;
    const note = tools.size === 0 ? noToolsNote(view, this.#lifecycleOf, performance.now()) : undefined;
    const instructions = note ?? catalog.instructions;
    const isPublic = catalog.caching.isPublic && isAnonymous(caller.principal);
    const caching = { ...catalog.caching, isPublic };
    const result = RawObject.EMPTY.with('supportedVersions', JSON.stringify([MODERN]))
      .with('capabilities', capabilitiesAt(MODERN, capabilities).toString())
      .with('instructions', instructions === undefined ? undefined : JSON.stringify(instructions));
    const stamped = this.#parts.translator.stampOwn(dialect, 'server/discover', result.toString(), caching);
    return { kind: 'result', result: stamped };
  }

  /** Adds the members that the client's revision requires to a result of the gateway itself. */
  #stamp({ dialect }: Pick<ClientGroup, 'dialect'>, method: string, answer: Answer): Answer {
    if (answer.kind === 'error') return answer;
    return { kind: 'result', result: this.#parts.translator.stampOwn(dialect, method, answer.result) };
  }

  /** Counts the request among those of its group. @throws {GatewayError} `overloaded` */
  #countIn(modernRequest: ModernRequest, group: ClientGroup): void {
    if (group.inFlightCount >= this.#parts.inFlightPerSession) {
      throw new GatewayError('overloaded', { message: `you have ${group.inFlightCount} requests under way` });
    }
    modernRequest.countIn(group);
  }

  async #route(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    const { request, lookup } = modernRequest;
    const { group } = modernClient;
    this.#countIn(modernRequest, group);
    const retry = request.params === undefined ? undefined : readRetry(request.params);
    if (request.params !== undefined && retry === undefined) {
      throw new GatewayError('invalid-params', {
        message: '"inputResponses" must be an object, "requestState" a string',
      });
    }
    const to = await resolve(this.#parts.listRefresher, this.#lifecycleOf, group, request);
    if (to.kind === 'nowhere') throw to.error;
    if (lookup !== undefined) checkHeaders(request, to, lookup);
    return retry?.requestState === undefined
      ? await this.#send(modernRequest, modernClient, to)
      : await this.#retry(modernRequest, modernClient, to, retry, retry.requestState);
  }

  /** Continues a call with the `requestState` of its last answer. The retry may come without input responses. */
  async #retry(
    modernRequest: ModernRequest,
    modernClient: ModernClient,
    to: UpstreamRoute,
    retry: Retry,
    requestState: string,
  ): Promise<Answer> {
    const { request } = modernRequest;
    const state = await unsealState(this.#parts.sealer, requestState, modernClient.caller, request);
    if (state.kind === 'park') {
      const ownership = await this.#parts.owners.ownerOf({ kind: 'parked-call', process: state.owner });
      if (ownership.kind === 'here') return await this.#resume(modernRequest, modernClient, state, retry);
      if (ownership.kind === 'elsewhere') return await this.#delegate(modernRequest, ownership.owner);
      throw new GatewayError('invalid-state', { message: 'the call is over; make it again' });
    }
    if (state.upstream !== to.upstream) throw new GatewayError('invalid-state');
    let forwarded: Retry = { inputResponses: undefined, requestState: undefined };
    if (state.kind === 'relay') {
      forwarded = { inputResponses: retry.inputResponses, requestState: state.inner };
    } else {
      const refused = await this.#awaitVisits(modernClient, request.method, state, retry.inputResponses);
      if (refused !== undefined) return refused;
    }
    return await this.#send(modernRequest, modernClient, { ...to, params: withRetry(to.params, forwarded) });
  }

  #send(modernRequest: ModernRequest, modernClient: ModernClient, to: UpstreamRoute): Promise<Answer> {
    const { group } = modernClient;
    const { calls, parked } = this.#parts;
    const upstream = this.#parts.upstreams.get(to.upstream);
    const isExclusive = group.capabilityKey !== '' && upstream?.needsOwnConnection(group.era) === true;
    const holder = group.forUpstream(
      to.upstream,
      isExclusive,
      (key) => new ClientGroup(key, modernClient.caller, group.catalog),
    );
    const exchange = new OpenExchange(modernClient, holder, modernRequest.request, modernRequest.sink);
    exchange.upstream = to.upstream;
    exchange.setTool(to);
    const era = upstream?.servingEra(group.era);
    const asksInAnswers = era !== undefined && UPSTREAM_DIALECTS[era].asksInAnswers;
    // The upstream cannot ask during the call, so the call does not outlive its request.
    if (modernClient.rounds === undefined || asksInAnswers) {
      modernRequest.bindTo(exchange, holder);
      return calls.send(exchange, to).then((outcome) => this.#toAnswer(exchange, outcome));
    }
    modernRequest.bind(exchange);
    holder.addExchange(exchange);
    return parked.follow(exchange, to.upstream, modernClient.rounds, this.#work(exchange, to, holder));
  }

  /** Makes a call that may outlive its request. Resolves with the final answer. Never rejects. */
  async #work(exchange: OpenExchange, to: UpstreamRoute, holder: ClientGroup): Promise<Answer> {
    try {
      const outcome = await this.#parts.calls.send(exchange, to);
      if (exchange.failure !== undefined) throw exchange.failure;
      return await this.#toAnswer(exchange, outcome);
    } catch (thrown) {
      const { request, span } = exchange;
      return upgradedAnswer(this.#parts.recorder.fail(exchange.failure ?? thrown, request.method, span));
    } finally {
      holder.removeExchange(exchange);
    }
  }

  /** Returns the answer to the client: the upstream's, or the questions that the client answers in a retry. */
  #toAnswer(exchange: OpenExchange, outcome: CallOutcome): Answer | Promise<Answer> {
    const { upstream = '' } = exchange;
    switch (outcome.kind) {
      case 'answer':
        return outcome.answer;
      case 'input-required': {
        const { inputRequests, requestState } = outcome.inputRequired;
        const state = { kind: 'relay', upstream, inner: requestState } as const;
        return this.#inputRequired(exchange, upstream, inputRequests, state);
      }
      case 'urls-required': {
        const ids = outcome.elicitations.map(({ elicitationId }) => elicitationId);
        const requests = outcome.elicitations.map(({ url, message }, i) => ({
          key: `url${i + 1}`,
          method: 'elicitation/create',
          params: RawObject.of({ mode: 'url', message, url }),
        }));
        return this.#inputRequired(exchange, upstream, requests, { kind: 'pages', upstream, ids });
      }
    }
  }

  /** Returns the answer with questions and the sealed state for the retry. */
  async #inputRequired(
    { client, request }: OpenExchange,
    upstream: string,
    requests: readonly InputRequest[],
    state: RequestState,
  ): Promise<Answer> {
    const { sealer, questionPolicy } = this.#parts;
    questionPolicy.assertAllowed(upstream, requests);
    const sealed = await sealState(sealer, state, client.caller, request, Date.now() + STATE_MS);
    const inputRequests = requests.map((one) => ({
      ...one,
      // `params` is optional for roots/list, but the Go SDK cannot read the request without it.
      params: questionPolicy.toClient(client, upstream, one),
    }));
    const result = inputRequiredResult({ inputRequests, requestState: JSON.stringify(sealed) });
    return { kind: 'result', result: result.toString() };
  }

  /**
   * Waits until the upstream has reported the visits that the user completed. If the client says nothing about the URLs,
   * the upstream is asked again without waiting.
   *
   * @returns a tool failure if the user did not open a URL; undefined if the call can be sent.
   * @throws {GatewayError} `client-unreachable` in that case, for other methods.
   */
  async #awaitVisits(
    client: ModernClient,
    method: string,
    { upstream, ids }: { readonly upstream: string; readonly ids: readonly string[] },
    responses: RawObject | undefined,
  ): Promise<Answer | undefined> {
    const actions = ids.map((_, i) => responses?.object(`url${i + 1}`)?.string('action'));
    if (actions.some((action) => action !== undefined && action !== 'accept')) {
      const message = 'the page that has to be opened first was not opened';
      if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', message });
      return this.#stamp(client, method, toolFailure(message));
    }
    if (actions.every((action) => action === 'accept')) await this.#parts.urlElicitations.wait(upstream, ids, VISIT_MS);
    return undefined;
  }

  /** Passes a request on to the process of its parked call or task. */
  async #delegate(modernRequest: ModernRequest, owner: Owner): Promise<Answer> {
    const { request, caller, sink } = modernRequest;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const back = { receivedMs: sink.receivedMs, send: (text: string) => sink.send(text), answer: resolve };
    modernRequest.delegateTo(owner.handleModernRequest(request, caller, back));
    return await promise;
  }

  /** Attaches a retry to its parked call. */
  #resume(
    modernRequest: ModernRequest,
    { caller, group, logLevel }: ModernClient,
    state: { readonly park: string; readonly round: number },
    retry: Retry,
  ): Promise<Answer> {
    return this.#parts.parked.resume(state, retry.inputResponses, (exchange, rounds) => {
      exchange.attach(new ModernClient(caller, group, logLevel, rounds), modernRequest.request, modernRequest.sink);
      modernRequest.bind(exchange);
    });
  }
}

/** Compares the `Mcp-Param-…` headers with the arguments. @throws {GatewayError} `header-mismatch` */
function checkHeaders({ params }: Request, { source }: UpstreamRoute, lookup: HeaderLookup): void {
  if (source === undefined || source.headerParams.length === 0) return;
  const fault = paramHeaderFault(source.headerParams, params?.object('arguments'), lookup);
  if (fault !== undefined) throw new GatewayError('header-mismatch', { message: fault });
}

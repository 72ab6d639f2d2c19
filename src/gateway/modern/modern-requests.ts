import { capabilitiesAt } from '../../catalog/merge.ts';
import { GatewayError, toAnswer } from '../../errors.ts';
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
import type { CallOutcome } from '../calls/asking-answers.ts';
import type { Calls } from '../calls/calls.ts';
import type { UrlElicitations } from '../questions/url-elicitations.ts';
import type { ModernCaller, ModernSink } from '../front.ts';
import { SubscriptionStream, readFilter } from './subscription-stream.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { LISTS, type ListAnswers } from '../forward/list-answers.ts';
import { OpenExchange } from '../exchange/open-exchange.ts';
import type { RequestRecorder } from '../exchange/request-recorder.ts';
import type { CallOwners } from '../questions/call-owners.ts';
import type { ParkedCalls } from '../questions/parked-calls.ts';
import type { Upstreams } from '../exchange/connection-holder.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import { noToolsNote, resolve } from '../calls/resolve.ts';
import type { Lifecycle } from '../../upstream/lifecycle.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { Sealer } from '../handles/sealer.ts';
import { type RequestState, sealState, unsealState } from '../handles/request-state.ts';
import { InputRounds } from '../questions/input-rounds.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import { TaskSubscriptions } from '../tasks/task-subscriptions.ts';
import { mustDeclareTasks, type Tasks } from '../tasks/tasks.ts';
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
  readonly callOwners: CallOwners;
  /** What {@link callOwners} know this process by. */
  readonly ownerName: string;
  readonly recorder: RequestRecorder;
}

/** A state we gave out is good for this long where nothing waits for it: people need time. */
const STATE_MS = 3_600_000;

/** An upstream that was promised a page is opened says within this time that it was. */
const PAGE_MS = 20_000;

/** Answers requests of 2026-07-28, each of which stands alone. */
export class ModernRequests implements ModernRequestHost {
  readonly #parts: ModernRequestsParts;

  constructor(parts: ModernRequestsParts) {
    this.#parts = parts;
  }

  readonly #lifecycleOf = (upstream: string): Lifecycle | undefined => this.#parts.upstreams.get(upstream)?.lifecycle;

  /** Every failure is an answer. */
  request(request: Request, caller: ModernCaller, sink: ModernSink, lookup: HeaderLookup | undefined): ModernRequest {
    const modernRequest = new ModernRequest(this, request, caller, sink, lookup);
    modernRequest.follow(this.#begin(modernRequest));
    return modernRequest;
  }

  async #begin(modernRequest: ModernRequest): Promise<Answer> {
    const { caller, sink } = modernRequest;
    const group = await this.#parts.groups.groupFor(caller, sink.receivedMs);
    return await this.#answer(modernRequest, group);
  }

  finish(modernRequest: ModernRequest, answer: Answer): void {
    const { caller, request, exchange, sink } = modernRequest;
    modernRequest.release();
    try {
      this.#parts.recorder.end(caller, request, exchange, answer, performance.now() - sink.receivedMs);
    } catch (thrown) {
      // Whatever becomes of our own books, the client is answered.
      this.#parts.recorder.fail(thrown, request.method);
    }
    sink.answer(answer);
  }

  toFailure({ request }: ModernRequest, thrown: unknown): Answer {
    return upgradedAnswer(this.#parts.recorder.fail(thrown, request.method));
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
        return listRefresher.beginFirstLists(caller.view, 'modern', NO_FEATURES).then(() => {
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
    if (taskIds.length > 0) mustDeclareTasks(caller, method);
    await this.#parts.listRefresher.refreshFor(group);
    const { links, tasks, taskIds: ids } = this.#parts;
    const news = new TaskSubscriptions({ ids, links, tasks }, modernClient);
    const listen = new SubscriptionStream(id, sink, group, links, kinds, news);
    modernRequest.attachStream(listen);
    return this.#stamp(method, await listen.run(uris, taskIds));
  }

  #runTask(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    const { group } = modernClient;
    const exchange = new OpenExchange(modernClient, group, modernRequest.request, modernRequest.sink);
    // Not one of those that work: it must not be taken for the one an upstream asks.
    modernRequest.bind(exchange);
    this.#countIn(modernRequest, group);
    return this.#parts.tasks.request(exchange);
  }

  #discover({ catalog, caller }: ClientGroup): Answer {
    const { capabilities, tools, view } = catalog;
    const note = tools.size === 0 ? noToolsNote(view, this.#lifecycleOf, performance.now()) : undefined;
    const instructions = note ?? catalog.instructions;
    const isPublic = catalog.caching.isPublic && isAnonymous(caller.principal);
    const caching = { ...catalog.caching, isPublic };
    const result = RawObject.EMPTY.with('supportedVersions', JSON.stringify([MODERN]))
      .with('capabilities', capabilitiesAt(MODERN, capabilities).toString())
      .with('instructions', instructions === undefined ? undefined : JSON.stringify(instructions));
    return { kind: 'result', result: this.#parts.translator.stampOwn('server/discover', result.toString(), caching) };
  }

  #stamp(method: string, answer: Answer): Answer {
    return answer.kind === 'error'
      ? answer
      : { kind: 'result', result: this.#parts.translator.stampOwn(method, answer.result) };
  }

  /** @throws {GatewayError} `overloaded` */
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

  /** The client brings back what it was given with questions, whether or not it has answers. */
  async #retry(
    modernRequest: ModernRequest,
    modernClient: ModernClient,
    to: UpstreamRoute,
    retry: Retry,
    requestState: string,
  ): Promise<Answer> {
    const { request } = modernRequest;
    const state = await unsealState(this.#parts.sealer, requestState, modernClient.caller, request);
    if (state.kind === 'park' && state.owner !== this.#parts.ownerName)
      return await this.#delegate(modernRequest, state.owner);
    if (state.kind === 'park') return await this.#resume(modernRequest, modernClient, state, retry);
    if (state.upstream !== to.upstream) throw new GatewayError('invalid-state');
    let given: Retry = { inputResponses: undefined, requestState: undefined };
    if (state.kind === 'relay') {
      given = { inputResponses: retry.inputResponses, requestState: state.inner };
    } else {
      const end = await this.#awaitPages(request.method, to.upstream, state.ids, retry.inputResponses);
      if (end !== undefined) return end;
    }
    return await this.#send(modernRequest, modernClient, { ...to, params: withRetry(to.params, given) });
  }

  #send(modernRequest: ModernRequest, modernClient: ModernClient, to: UpstreamRoute): Promise<Answer> {
    const { group } = modernClient;
    const { calls, parked } = this.#parts;
    const upstream = this.#parts.upstreams.get(to.upstream);
    const isExclusive = group.capabilityKey !== '' && upstream?.needsOwnConnection('modern') === true;
    const holder = group.forUpstream(
      to.upstream,
      isExclusive,
      (key) => new ClientGroup(key, modernClient.caller, group.catalog),
    );
    const exchange = new OpenExchange(modernClient, holder, modernRequest.request, modernRequest.sink);
    exchange.upstream = to.upstream;
    exchange.tool = to.tool;
    // A client without capabilities is not asked anything, and a modern upstream asks in its answer.
    if (modernClient.rounds === undefined || upstream?.servingEra('modern') === 'modern') {
      modernRequest.bindTo(exchange, holder);
      return calls.send(exchange, to).then((outcome) => this.#toAnswer(exchange, outcome));
    }
    modernRequest.bind(exchange);
    holder.activeExchanges.add(exchange);
    return parked.follow(exchange, to.upstream, modernClient.rounds, this.#work(exchange, to, holder));
  }

  /** The whole of a call that may outlive its request. Never rejects. */
  async #work(exchange: OpenExchange, to: UpstreamRoute, holder: ClientGroup): Promise<Answer> {
    try {
      const outcome = await this.#parts.calls.send(exchange, to);
      if (exchange.failure !== undefined) throw exchange.failure;
      return await this.#toAnswer(exchange, outcome);
    } catch (thrown) {
      return toAnswer(exchange.failure ?? thrown);
    } finally {
      holder.activeExchanges.delete(exchange);
    }
  }

  /** Returns the answer to the client: the upstream's, or the questions that the client answers when it makes the call again. */
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
      case 'pages-required': {
        const ids = outcome.pages.map(({ elicitationId }) => elicitationId);
        const requests = outcome.pages.map(({ url, message }, i) => ({
          key: `url${i + 1}`,
          method: 'elicitation/create',
          params: RawObject.of({ mode: 'url', message, url }),
        }));
        return this.#inputRequired(exchange, upstream, requests, { kind: 'pages', upstream, ids });
      }
    }
  }

  /** Questions for the client, and the sealed state that its answers come back with. */
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
   * The user was sent to some pages. Of those nothing was said about, the upstream tells again.
   *
   * @returns how a tool call ends, where they would not go.
   * @throws {GatewayError} `client-unreachable`: how everything else ends then.
   */
  async #awaitPages(
    method: string,
    upstream: string,
    ids: readonly string[],
    responses: RawObject | undefined,
  ): Promise<Answer | undefined> {
    const actions = ids.map((_, i) => responses?.object(`url${i + 1}`)?.string('action'));
    if (actions.some((action) => action !== undefined && action !== 'accept')) {
      const message = 'the page that has to be opened first was not opened';
      if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', message });
      return this.#stamp(method, toolFailure(message));
    }
    if (actions.every((action) => action === 'accept')) await this.#parts.urlElicitations.wait(upstream, ids, PAGE_MS);
    return undefined;
  }

  /** The call is another process's: it answers in our stead. @throws {GatewayError} `invalid-state` when it is gone. */
  async #delegate(modernRequest: ModernRequest, name: string): Promise<Answer> {
    const { request, caller, sink } = modernRequest;
    const owner = await this.#parts.callOwners.find(name);
    if (owner === undefined) throw new GatewayError('invalid-state', { message: 'the call is over; make it again' });
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const back = { receivedMs: sink.receivedMs, send: (text: string) => sink.send(text), answer: resolve };
    modernRequest.delegateTo(owner.handleModernRequest(request, caller, back));
    return await promise;
  }

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

/** @throws {GatewayError} `header-mismatch` */
function checkHeaders({ params }: Request, { source }: UpstreamRoute, lookup: HeaderLookup): void {
  if (source === undefined || source.headerParams.length === 0) return;
  const fault = paramHeaderFault(source.headerParams, params?.object('arguments'), lookup);
  if (fault !== undefined) throw new GatewayError('header-mismatch', { message: fault });
}

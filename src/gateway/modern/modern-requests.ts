import type { SharedParts } from '../records/shared-parts.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { capabilitiesAt } from '../../catalog/merge.ts';
import type { Settings } from '../../config/values/config.ts';
import { failureOfRetry, GatewayError } from '../../errors.ts';
import { readRetry, type Retry, withRetry } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import { type Answer, EMPTY_RESULT, type Request } from '../../protocol/jsonrpc.ts';
import { type HeaderLookup, paramHeaderFault } from '../../protocol/framing/mcp-headers.ts';
import { MODERN_REVISIONS } from '../../protocol/revisions.ts';
import type { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { ClientGroup, type ClientGroups } from '../clients/client-group.ts';
import { assertPermitted } from '../calls/call-judge.ts';
import type { Calls } from '../calls/calls.ts';
import type { ModernCaller, ModernSink } from '../front/front.ts';
import { readFilter } from './listen-filter.ts';
import { RemoteListens, splitFilter } from './remote-listens.ts';
import { SubscriptionStream } from './subscription-stream.ts';
import type { ConnectionOwners } from '../connections/connection-owners.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { assertDeclaresTasks, clientDialect } from '../dialects/client-dialect.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import { canBeAskedAnything } from '../exchange/client-capabilities.ts';
import { OpenExchange } from '../exchange/open-exchange.ts';
import { InputRounds } from '../exchange/input-rounds.ts';
import { MAX_HOPS, OWNER_RETRY_MS, OWNER_WAIT_MS } from '../exchange/owners.ts';
import { lastingRequest } from '../records/message-bytes.ts';
import type { RequestRecorder } from '../records/request-recorder.ts';
import type { ParkedCalls } from '../questions/parked-calls.ts';
import type { Upstreams } from '../exchange/connection-holder.ts';
import type { Offers } from '../lists/offers.ts';
import { upstreamItem, type UpstreamRoute } from '../exchange/route.ts';
import { upstreamErrorTypeOf } from '../../telemetry/operation.ts';
import { Dispatcher, type DispatcherParts, tooManyInFlight } from '../calls/dispatcher.ts';
import { unsealState } from '../handles/request-state.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import { TaskSubscriptions } from '../tasks/task-subscriptions.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { ModernClient } from '../clients/modern-client.ts';
import { AskingAnswers, type AskingAnswersParts } from './asking-answers.ts';
import { passOn, passOnOrFail, unreachable } from './pass-on.ts';
import { formerRoute } from './former-route.ts';
import { PartQuestions } from './part-questions.ts';
import { type ModernRequestHost, ModernRequest } from './modern-request.ts';

export interface ModernRequestsParts
  extends DispatcherParts, AskingAnswersParts, Pick<SharedParts, 'counters' | 'audit'> {
  readonly groups: Pick<ClientGroups, 'groupFor'>;
  readonly upstreams: Pick<Upstreams, 'get'>;
  readonly calls: Pick<Calls, 'send'>;
  readonly tasks: Tasks;
  readonly taskIds: TaskIds;
  readonly parked: Pick<ParkedCalls, 'follow' | 'resume' | 'endOf'>;
  readonly links: HolderLinks;
  readonly offers: Pick<Offers, 'cachingOf'>;
  readonly settings: Settings<'limits'>;
  readonly connectionOwners: ConnectionOwners;
  readonly recorder: Pick<RequestRecorder, 'begin' | 'end' | 'fail'>;
  /** Bounds the resources that all streams are subscribed to. */
  readonly streamBytes: ByteBounds;
}

/** The time for an upstream to report that the user has done what a URL was opened for. */
const VISIT_MS = 20_000;

/** Answers the requests of modern clients, each of which is independent of the others. */
export class ModernRequests implements ModernRequestHost {
  readonly #parts: ModernRequestsParts;
  readonly #dispatcher: Dispatcher<ModernRequest, ModernClient>;
  readonly #asking: AskingAnswers;

  constructor(parts: ModernRequestsParts) {
    this.#parts = parts;
    this.#asking = new AskingAnswers(parts);
    this.#dispatcher = new Dispatcher(parts, {
      admit: (modernRequest, { group }) => this.#countIn(modernRequest, group),
      formerRoute: ({ request }, client) => formerRoute(parts.sealer, request, client),
      call: (modernRequest, client, to) => this.#call(modernRequest, client, to),
      runTask: (modernRequest, client) => this.#runTask(modernRequest, client),
      answer: (modernRequest, client) => this.#answer(modernRequest, client),
    });
  }

  /** Begins to answer a request. Every failure is an answer. */
  request(request: Request, caller: ModernCaller, sink: ModernSink, lookup: HeaderLookup | undefined): ModernRequest {
    const span = this.#parts.recorder.begin(request, lookup, isPassedOn(caller));
    const modernRequest = new ModernRequest(this, request, caller, sink, lookup, span);
    void modernRequest.follow(this.#begin(modernRequest));
    return modernRequest;
  }

  async #begin(modernRequest: ModernRequest): Promise<Answer> {
    const { caller, sink } = modernRequest;
    const group = await this.#parts.groups.groupFor(caller, sink.receivedMs);
    modernRequest.openIn(group);
    return await this.#dispatcher.answer(modernRequest, this.#clientOf(modernRequest, group), group);
  }

  #clientOf({ request, caller }: ModernRequest, group: ClientGroup): ModernClient {
    const canBeAsked = canBeAskedAnything(group.clientCapabilities) && request.method !== 'subscriptions/listen';
    const responses = canBeAsked ? request.params?.object('inputResponses') : undefined;
    const rounds = canBeAsked ? new InputRounds(this.#parts.onLimit, responses) : undefined;
    return new ModernClient(caller, group, caller.logLevel, rounds);
  }

  finish(modernRequest: ModernRequest, answer: Answer): void {
    const { caller, group, request, exchange, sink, span, isAnsweredElsewhere } = modernRequest;
    modernRequest.release();
    const durationMs = performance.now() - sink.receivedMs;
    this.#parts.recorder.end({
      caller,
      holder: group,
      request,
      exchange,
      answer,
      durationMs,
      span,
      isPassedOn: isPassedOn(caller),
      isAnsweredElsewhere,
    });
    sink.answer(answer);
  }

  toFailure({ request, caller, span, continuesCall }: ModernRequest, thrown: unknown): Answer {
    const failure = continuesCall && thrown instanceof GatewayError ? failureOfRetry(thrown) : thrown;
    const answer = this.#parts.recorder.fail(failure, { request, principal: caller.principal, span });
    return clientDialect(caller.revision).failure(answer);
  }

  #answer(modernRequest: ModernRequest, modernClient: ModernClient): Answer | Promise<Answer> {
    const { request, caller } = modernRequest;
    const { group } = modernClient;
    const { listRefresher } = this.#parts;
    if (!modernClient.dialect.describesClient) return answerSessionless(request);
    switch (request.method) {
      case 'server/discover':
        return listRefresher
          .beginFirstLists(caller.view, { era: 'modern', principal: group.principal, ...NO_FEATURES })
          .then(() => {
            listRefresher.bringUpToDate(group);
            return this.#discover(modernClient);
          });
      case 'subscriptions/listen':
        return this.#listen(modernRequest, modernClient);
      default:
        throw new GatewayError('method-not-found', { message: request.method });
    }
  }

  async #listen(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    // While the stream is open, nothing here may keep the text of the request.
    const stream = await this.#openStream(modernRequest, modernClient);
    const ended = await stream.end();
    if (ended.kind === 'error') return ended;
    const { method } = modernRequest.request;
    return { kind: 'result', result: this.#parts.translator.stampOwn(modernClient.dialect, method, ended.result) };
  }

  async #openStream(modernRequest: ModernRequest, modernClient: ModernClient): Promise<SubscriptionStream> {
    const { caller, sink, passedOn } = modernRequest;
    const { group } = modernClient;
    const { onLimit } = this.#parts;
    const filter = readFilter(modernRequest.request.params, onLimit);
    modernRequest.request = lastingRequest(modernRequest.request);
    const { id, method } = modernRequest.request;
    if (filter.taskIds.length > 0) assertDeclaresTasks(caller.capabilities, method);
    const refreshing = this.#parts.listRefresher.refreshFor(group);
    if (refreshing !== undefined) await modernRequest.unlessCancelled(refreshing);
    const { links, gate, external, tasks, taskIds: ids, owners, audit, streamBytes } = this.#parts;
    await audit?.begin(modernRequest.request, caller, undefined);
    const isPart = isPassedOn(caller);
    const isWhole = owners.isAlone || isPart;
    const split = isWhole ? undefined : await splitFilter(this.#parts, modernClient, filter);
    const { kinds, uris, taskIds } = split?.here ?? filter;
    const remote = split === undefined ? undefined : new RemoteListens(passedOn, caller, sink, split.elsewhere);
    const questions = new PartQuestions(isPart ? sink.receivedMs : undefined);
    const taskSubscriptions = new TaskSubscriptions({ ids, links, tasks, questions }, modernClient);
    const own = { id, sink, caller, group, kinds, tasks: taskSubscriptions, remote, questions };
    const stream = new SubscriptionStream({ ...own, links, gate, external, streamBytes, onLimit });
    modernRequest.attachStream(stream);
    await stream.open(uris, taskIds);
    return stream;
  }

  async #runTask(modernRequest: ModernRequest, modernClient: ModernClient): Promise<Answer> {
    const { group } = modernClient;
    const exchange = new OpenExchange(modernClient, group, modernRequest.request, modernRequest.sink);
    // The group does not list this exchange, since a question of an upstream is never about a task request.
    modernRequest.bind(exchange);
    await this.#countIn(modernRequest, group);
    const outcome = await this.#parts.tasks.request(exchange);
    return outcome.kind === 'elsewhere' ? await passOnOrFail(modernRequest, outcome.owner) : outcome;
  }

  #discover({ catalog, caller, dialect, group }: ModernClient): Answer {
    const caching = this.#parts.offers.cachingOf(group);
    const declared = this.#parts.listRefresher.capabilitiesFor(group, catalog);
    const result = RawObject.EMPTY.with('supportedVersions', JSON.stringify(MODERN_REVISIONS))
      .with('capabilities', capabilitiesAt(caller.revision, declared).toString())
      .with('instructions', this.#dispatcher.instructionsOf(catalog));
    const stamped = this.#parts.translator.stampOwn(dialect, 'server/discover', result.toString(), caching);
    return { kind: 'result', result: stamped };
  }

  /** Counts the request among those of its group. @throws {GatewayError} `overloaded` */
  async #countIn(modernRequest: ModernRequest, group: ClientGroup): Promise<void> {
    const { counters, settings } = this.#parts;
    const { inFlightPerSession: limit } = settings().limits;
    if (group.inFlightCount >= limit) throw tooManyInFlight(group.inFlightCount);
    modernRequest.countIn(group);
    // The process that has passed the request on counts it.
    if (counters === undefined || isPassedOn(modernRequest.caller)) return;
    // A reload of the config may change it before the request is answered.
    const name = group.counterName;
    if (!(await counters.acquire(name, limit))) throw tooManyInFlight(limit);
    const release = () => counters.release(name);
    modernRequest.onRelease = release;
  }

  #call(modernRequest: ModernRequest, modernClient: ModernClient, to: UpstreamRoute): Promise<Answer> {
    const { request, lookup } = modernRequest;
    const retry = request.params === undefined ? undefined : readRetry(request.params);
    if (request.params !== undefined && retry === undefined) {
      throw new GatewayError('invalid-params', {
        message: '"inputResponses" must be an object, "requestState" a string',
      });
    }
    if (lookup !== undefined && modernClient.dialect.describesClient) checkHeaders(request, to, lookup);
    return retry?.requestState === undefined
      ? this.#sendToOwner(modernRequest, modernClient, to)
      : this.#retry(modernRequest, modernClient, to, retry, retry.requestState);
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
    modernRequest.bind(exchangeFor(modernRequest, modernClient, to));
    const state = await unsealState(this.#parts.sealer, requestState, modernClient.caller, request);
    if (state.kind === 'park') {
      const own = to.upstreamTool ?? upstreamItem(request.method, to);
      const { upstream = to.upstream, tool, item = own } = state;
      // The name leads to another item by now, and that one was judged.
      if (upstream !== to.upstream || (tool ?? item) !== own) throw new GatewayError('invalid-state');
      const ownership = await this.#parts.owners.ownerOf({ kind: 'parked-call', process: state.owner });
      if (ownership.kind === 'here') return await this.#resume(modernRequest, modernClient, to, state, retry);
      if (ownership.kind === 'elsewhere') return await passOnOrFail(modernRequest, ownership.owner);
      return await this.#endOf(modernRequest, modernClient, to, state.park, to.upstream);
    }
    // The upstream has answered the earlier request instead of running it.
    modernRequest.continuesCall = false;
    if (state.upstream !== to.upstream) throw new GatewayError('invalid-state');
    let forwarded: Retry = { inputResponses: undefined, requestState: undefined };
    if (state.kind === 'relay') {
      forwarded = { inputResponses: retry.inputResponses, requestState: state.inner };
    } else {
      const ownership = await this.#parts.owners.ownerOf({ kind: 'parked-call', process: state.owner });
      if (ownership.kind === 'elsewhere') {
        const answer = await passOn(modernRequest, ownership.owner);
        if (answer !== undefined) return answer;
      }
      // Nobody hears of visits when that process is gone, so the upstream is asked at once.
      const waitMs = ownership.kind === 'here' ? VISIT_MS : 0;
      const { inputResponses } = retry;
      const visits = this.#asking.awaitVisits(modernClient, request.method, state, inputResponses, waitMs);
      const refused = await modernRequest.unlessCancelled(visits);
      if (refused !== undefined) {
        if (modernRequest.exchange !== undefined) modernRequest.exchange.toldFailure = 'client-unreachable';
        return refused;
      }
    }
    return await this.#sendToOwner(modernRequest, modernClient, { ...to, params: withRetry(to.params, forwarded) });
  }

  /** Sends a request to the process that has the connection of the group, which may be this one. */
  async #sendToOwner(modernRequest: ModernRequest, modernClient: ModernClient, to: UpstreamRoute): Promise<Answer> {
    const { connectionOwners } = this.#parts;
    const { group } = modernClient;
    const { hops = 0 } = modernRequest.caller;
    const lateMs = performance.now() + OWNER_WAIT_MS;
    for (;;) {
      let ownership = connectionOwners.ownerOf(group, to.upstream, hops > 0);
      if (ownership instanceof Promise) ownership = await ownership;
      if (ownership.kind !== 'elsewhere') return await this.#send(modernRequest, modernClient, to);
      if (modernRequest.exchange === undefined) modernRequest.bind(exchangeFor(modernRequest, modernClient, to));
      const isLate = hops > MAX_HOPS || performance.now() > lateMs;
      const answer = isLate ? undefined : await passOn(modernRequest, ownership.owner);
      if (answer !== undefined) return answer;
      if (isLate) throw unreachable();
      await sleep(OWNER_RETRY_MS);
    }
  }

  #send(modernRequest: ModernRequest, modernClient: ModernClient, to: UpstreamRoute): Promise<Answer> {
    const { group } = modernClient;
    const { calls, links, parked } = this.#parts;
    const upstream = this.#parts.upstreams.get(to.upstream);
    const isExclusive =
      upstream?.needsOwnConnection(group.era) === true &&
      canBeAskedAnything(upstream.usableCapabilities(group.clientCapabilities));
    const make = (key: string) => new ClientGroup(key, modernClient.caller, group.catalog);
    const holder = isExclusive ? group.exclusiveFor(to.upstream, make) : group;
    const exchange = exchangeFor(modernRequest, modernClient, to, holder);
    // A link that is still to be opened may have another era than the last one.
    const link = upstream && links.findOpen(holder, upstream);
    const asksInAnswers = link !== undefined && UPSTREAM_DIALECTS[link.era].asksInAnswers;
    // The upstream cannot ask during the call, so the call does not outlive its request.
    if (modernClient.rounds === undefined || asksInAnswers) {
      // A legacy link may replace the open one before the call is sent. Its questions are then refused.
      modernClient.rounds = undefined;
      modernRequest.bindTo(exchange, holder);
      return calls.send(exchange, to).then((outcome) => this.#asking.toAnswer(exchange, outcome));
    }
    modernRequest.bind(exchange);
    holder.addExchange(exchange);
    const work = this.#work(exchange, to, holder);
    modernRequest.sink.keepText?.(work);
    return parked.follow(exchange, to, modernClient.rounds, work);
  }

  /** Makes a call that may outlive its request. Resolves with the final answer. Never rejects. */
  async #work(exchange: OpenExchange, to: UpstreamRoute, holder: ClientGroup): Promise<Answer> {
    try {
      const outcome = await this.#parts.calls.send(exchange, to);
      if (exchange.failure !== undefined) throw exchange.failure;
      return await this.#asking.toAnswer(exchange, outcome);
    } catch (thrown) {
      const { request, client, span, isDetached } = exchange;
      const failed = { request, principal: client.caller.principal, span, isAwaited: !isDetached };
      return client.dialect.failure(this.#parts.recorder.fail(exchange.failure ?? thrown, failed));
    } finally {
      holder.removeExchange(exchange);
    }
  }

  async #resume(
    modernRequest: ModernRequest,
    modernClient: ModernClient,
    to: UpstreamRoute,
    state: { readonly park: string; readonly round: number },
    retry: Retry,
  ): Promise<Answer> {
    const { audit, links, parked } = this.#parts;
    const { caller, group, logLevel } = modernClient;
    const { upstream } = to;
    await audit?.begin(modernRequest.request, caller, upstream);
    this.#judgeAgain(modernRequest, modernClient, to);
    const answer = parked.resume(state, retry.inputResponses, (exchange, rounds, ended) => {
      modernRequest.sink.keepText?.(ended);
      exchange.attach(new ModernClient(caller, group, logLevel, rounds), modernRequest.request, modernRequest.sink);
      modernRequest.bind(exchange);
      const { holder } = exchange;
      const link = holder.links.get(upstream);
      // Sent before the answers, after which the upstream goes on.
      if (logLevel !== undefined && link !== undefined) void links.levels.ensure(holder, link, logLevel);
    });
    return await (answer ?? this.#endOf(modernRequest, modernClient, to, state.park));
  }

  /** Judges a retry by the policy of now, after it has waited for its record, or for the process that has the call. */
  #judgeAgain({ request, sink }: ModernRequest, client: ModernClient, to: UpstreamRoute): void {
    assertPermitted(this.#parts.gate, { client, request, judgedMs: sink.receivedMs }, to, false);
  }

  /** Returns the kept end of a parked call, which is that of the retry in its records too. */
  async #endOf(
    modernRequest: ModernRequest,
    modernClient: ModernClient,
    to: UpstreamRoute,
    park: string,
    lostUpstream?: string,
  ): Promise<Answer> {
    const { answer, isUpstreams } = await this.#parts.parked.endOf(park, lostUpstream);
    this.#judgeAgain(modernRequest, modernClient, to);
    const { exchange, request } = modernRequest;
    const isOwn = answer.kind === 'error' && !isUpstreams;
    if (exchange !== undefined && !isOwn) {
      exchange.outcome = { answer, error: upstreamErrorTypeOf(request.method, answer) };
    }
    return answer;
  }
}

/** Returns the exchange of a request. Until it is sent, only records read it. */
function exchangeFor(
  { request, sink }: ModernRequest,
  client: ModernClient,
  to: UpstreamRoute,
  holder = client.group,
): OpenExchange<ClientGroup> {
  const exchange = new OpenExchange(client, holder, request, sink);
  exchange.upstream = to.upstream;
  exchange.judgedMs = sink.receivedMs;
  exchange.setTool(to);
  return exchange;
}

/** Returns whether another process has passed the request on, or a part of it. */
function isPassedOn({ hops = 0 }: ModernCaller): boolean {
  return hops > 0;
}

/** Answers a method that only the legacy era has, without a session. @throws {GatewayError} `session-required`, `method-not-found` */
function answerSessionless({ method }: Request): Answer {
  switch (method) {
    case 'ping':
    // Clients set a level before their first call, and would give up. They get no log messages.
    case 'logging/setLevel':
      return EMPTY_RESULT;
    case 'resources/subscribe':
    case 'resources/unsubscribe':
      throw new GatewayError('session-required', { message: `${method} needs one` });
    default:
      throw new GatewayError('method-not-found', { message: method });
  }
}

/** Compares the `Mcp-Param-…` headers with the arguments. @throws {GatewayError} `header-mismatch` */
function checkHeaders({ params }: Request, { source }: UpstreamRoute, lookup: HeaderLookup): void {
  if (source === undefined || source.headerParams.length === 0) return;
  const fault = paramHeaderFault(source.headerParams, params?.object('arguments'), lookup);
  if (fault !== undefined) throw new GatewayError('header-mismatch', { message: fault });
}

import { capabilitiesAt } from '../catalog/merge.ts';
import { GatewayError, toAnswer } from '../errors.ts';
import {
  type InputRequest,
  inputRequiredResult,
  readRetry,
  type Retry,
  withRetry,
} from '../protocol/input-required.ts';
import { RawObject } from '../protocol/json.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import { type HeaderLookup, paramHeaderFault } from '../protocol/mcp-headers.ts';
import { MODERN } from '../protocol/revisions.ts';
import { TASK_METHODS } from '../protocol/tasks.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { Affinity, type Affinities } from './affinity.ts';
import { type Answers, toolFailure } from './answers.ts';
import { labelled } from './asks.ts';
import type { Caller } from './caller.ts';
import { type Calls, InputRequiredError, UrlRequiredError } from './calls.ts';
import type { Completions } from './completions.ts';
import type { Exchange } from './exchange.ts';
import type { ModernCaller, ModernOutlet } from './front.ts';
import { Listen, readFilter } from './listen.ts';
import type { Links } from './links.ts';
import { LISTS, type Lists } from './lists.ts';
import { OpenExchange } from './open-exchange.ts';
import type { Owners } from './owners.ts';
import type { Parked } from './parked.ts';
import type { Party } from './party.ts';
import { type Found, type Route, route } from './route.ts';
import type { Scouts } from './scouts.ts';
import type { Sealer } from './seal.ts';
import { type RequestState, sealState, unsealState } from './request-state.ts';
import { Rounds } from './rounds.ts';
import type { TaskIds } from './task-ids.ts';
import { TaskNews } from './task-news.ts';
import { mustDeclareTasks, type Tasks } from './tasks.ts';
import { Visit } from './visit.ts';
import { type Host, Visiting } from './visiting.ts';

export interface ModernParts {
  readonly affinities: Affinities;
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>;
  readonly calls: Calls;
  readonly tasks: Tasks;
  readonly taskIds: TaskIds;
  readonly parked: Parked;
  readonly scouts: Scouts;
  readonly links: Links;
  readonly lists: Lists;
  readonly answers: Answers;
  readonly sealer: Sealer;
  readonly completions: Completions;
  readonly inFlightPerSession: number;
  readonly owners: Owners;
  /** What {@link owners} know this process by. */
  readonly ownName: string;
  /** A failure as the answer that tells of it. */
  failed(thrown: unknown, method: string): Answer;
  /** Told of every request once it is answered. */
  served(caller: Caller, request: Request, exchange: OpenExchange | undefined, answer: Answer, ms: number): void;
}

/** A state we gave out is good for this long where nothing waits for it: people need time. */
const STATE_MS = 3_600_000;

/** An upstream that was promised a page is opened says within this time that it was. */
const PAGE_MS = 20_000;

/** Answers requests of 2026-07-28, each of which stands alone. */
export class Modern implements Host {
  readonly #parts: ModernParts;

  constructor(parts: ModernParts) {
    this.#parts = parts;
  }

  /** Every failure is an answer. */
  request(request: Request, caller: ModernCaller, outlet: ModernOutlet, lookup: HeaderLookup | undefined): Visiting {
    const visiting = new Visiting(this, request, caller, outlet, lookup);
    try {
      const affinity = this.#parts.affinities.of(caller, outlet.sinceMs);
      visiting.awaits(
        affinity instanceof Promise
          ? affinity.then((made) => this.#answer(visiting, made))
          : this.#answer(visiting, affinity),
      );
    } catch (thrown) {
      visiting.failed(thrown);
    }
    return visiting;
  }

  ended(visiting: Visiting, answer: Answer): void {
    const { caller, request, exchange, outlet } = visiting;
    visiting.over();
    try {
      this.#parts.served(caller, request, exchange, answer, performance.now() - outlet.sinceMs);
    } catch (thrown) {
      // Whatever becomes of our own books, the client is answered.
      this.#parts.failed(thrown, request.method);
    }
    outlet.answer(answer);
  }

  async unanswered({ exchange, isWhole, request }: Visiting, thrown: unknown): Promise<Answer> {
    try {
      if (exchange === undefined || !isWhole) throw thrown;
      return await this.#questioned(exchange, thrown);
    } catch (why) {
      return this.#parts.failed(why, request.method);
    }
  }

  /** Nothing where the visiting is going to be told. */
  #answer(visiting: Visiting, affinity: Affinity): Answer | undefined | Promise<Answer | undefined> {
    const { request, caller } = visiting;
    const { method, params } = request;
    const { scouts, lists } = this.#parts;
    const canBeAsked = affinity.profile !== '';
    const rounds = canBeAsked ? new Rounds(params?.object('inputResponses')) : undefined;
    const visit = new Visit(caller, affinity, caller.logLevel, rounds);
    const list = LISTS.get(method);
    if (list !== undefined) return lists.answer(affinity, list, request);
    if (TASK_METHODS.has(method)) return this.#tasked(visiting, visit);
    switch (method) {
      case 'tools/call':
      case 'prompts/get':
      case 'resources/read':
      case 'completion/complete':
        return this.#routed(visiting, visit);
      case 'server/discover':
        return scouts.greet(caller.view).then(() => this.#discovered(affinity));
      case 'subscriptions/listen':
        return this.#listened(visiting, visit);
      default:
        throw new GatewayError('method-not-found', { say: method });
    }
  }

  async #listened(visiting: Visiting, visit: Visit): Promise<Answer> {
    const { caller, outlet } = visiting;
    const { id, method, params } = visiting.request;
    const { affinity } = visit;
    const { kinds, uris, taskIds } = readFilter(params);
    if (taskIds.length > 0) mustDeclareTasks(caller, method);
    await this.#parts.scouts.look(affinity);
    const { links, tasks, taskIds: ids } = this.#parts;
    const news = new TaskNews({ ids, links, tasks }, visit);
    const listen = new Listen(id, outlet, affinity, links, kinds, news);
    visiting.listens(listen);
    return this.#own(method, await listen.run(uris, taskIds));
  }

  #tasked(visiting: Visiting, visit: Visit): Promise<Answer> {
    const { affinity } = visit;
    const exchange = new OpenExchange(visit, affinity, visiting.request, visiting.outlet);
    // Not one of those that work: it must not be taken for the one an upstream asks.
    visiting.took(exchange);
    this.#enter(visiting, affinity);
    return this.#parts.tasks.request(exchange);
  }

  #discovered({ catalog }: Affinity): Answer {
    const { capabilities, instructions, caching } = catalog;
    const result = RawObject.EMPTY.with('supportedVersions', JSON.stringify([MODERN]))
      .with('capabilities', capabilitiesAt(MODERN, capabilities).toString())
      .with('instructions', instructions === undefined ? undefined : JSON.stringify(instructions));
    return { kind: 'result', result: this.#parts.answers.own('server/discover', result.toString(), caching) };
  }

  #own(method: string, answer: Answer): Answer {
    return answer.kind === 'error'
      ? answer
      : { kind: 'result', result: this.#parts.answers.own(method, answer.result) };
  }

  /** @throws {GatewayError} `overloaded` */
  #enter(visiting: Visiting, affinity: Affinity): void {
    if (affinity.underWay >= this.#parts.inFlightPerSession) {
      throw new GatewayError('overloaded', { say: `you have ${affinity.underWay} requests under way` });
    }
    visiting.counts(affinity);
  }

  #routed(visiting: Visiting, visit: Visit): undefined | Promise<Answer | undefined> {
    const { request, lookup } = visiting;
    const { affinity } = visit;
    this.#enter(visiting, affinity);
    const retry = request.params === undefined ? undefined : readRetry(request.params);
    if (request.params !== undefined && retry === undefined) {
      throw new GatewayError('invalid-params', { say: '"inputResponses" must be an object, "requestState" a string' });
    }
    const goOn = (to: Route) => {
      if (to.kind === 'nowhere') throw to.error;
      if (lookup !== undefined) checkHeaders(request, to, lookup);
      return retry?.requestState === undefined
        ? this.#sent(visiting, visit, to)
        : this.#retried(visiting, visit, to, retry, retry.requestState);
    };
    const to = route(affinity.catalog, request);
    if (to.kind !== 'nowhere') return goOn(to);
    return Promise.resolve(this.#parts.scouts.look(affinity)).then(() => goOn(route(affinity.catalog, request)));
  }

  /** The client brings back what it was given with questions, whether or not it has answers. */
  async #retried(
    visiting: Visiting,
    visit: Visit,
    to: Found,
    retry: Retry,
    requestState: string,
  ): Promise<Answer | undefined> {
    const { request } = visiting;
    const state = await unsealState(this.#parts.sealer, requestState, visit.caller, request);
    if (state.kind === 'park' && state.owner !== this.#parts.ownName) return await this.#handed(visiting, state.owner);
    if (state.kind === 'park') return await this.#resumed(visiting, visit, state, retry);
    if (state.upstream !== to.upstream) throw new GatewayError('invalid-state');
    let given: Retry = { inputResponses: undefined, requestState: undefined };
    if (state.kind === 'relay') {
      given = { inputResponses: retry.inputResponses, requestState: state.inner };
    } else {
      const end = await this.#opened(request.method, to.upstream, state.ids, retry.inputResponses);
      if (end !== undefined) return end;
    }
    return await this.#sent(visiting, visit, { ...to, params: withRetry(to.params, given) });
  }

  #sent(visiting: Visiting, visit: Visit, to: Found): undefined | Promise<Answer> {
    const { affinity } = visit;
    const { calls, parked } = this.#parts;
    const upstream = this.#parts.upstreams.get(to.upstream);
    const isExclusive = affinity.profile !== '' && upstream?.needsOwnConnection === true;
    const party = affinity.at(to.upstream, isExclusive, (key) => new Affinity(key, visit.caller, affinity.catalog));
    const exchange = new OpenExchange(visit, party, visiting.request, visiting.outlet);
    exchange.upstream = to.upstream;
    exchange.tool = to.tool;
    // Who cannot be asked is not asked, and a modern upstream asks in its answer.
    if (visit.rounds === undefined || upstream?.isModern === true) {
      visiting.tookAt(exchange, party);
      calls.relay(exchange, to, visiting);
      return undefined;
    }
    visiting.took(exchange);
    party.working.add(exchange);
    return parked.follow(exchange, to.upstream, visit.rounds, this.#worked(exchange, to, party));
  }

  /** The whole of a call that may outlive its request. Never rejects. */
  async #worked(exchange: OpenExchange, to: Found, party: Affinity): Promise<Answer> {
    try {
      const answer = await this.#parts.calls.forward(exchange, to);
      return exchange.failure === undefined ? answer : toAnswer(exchange.failure);
    } catch (thrown) {
      return await this.#questioned(exchange, exchange.failure ?? thrown).catch(toAnswer);
    } finally {
      party.working.delete(exchange);
    }
  }

  /** Gives an upstream's questions on to the client, under a seal. Throws what is none. */
  async #questioned(exchange: OpenExchange, thrown: unknown): Promise<Answer> {
    const { upstream = '' } = exchange;
    if (thrown instanceof InputRequiredError) {
      const { inputRequests, requestState } = thrown.asked;
      return await this.#asked(exchange, upstream, inputRequests, { kind: 'relay', upstream, inner: requestState });
    }
    if (thrown instanceof UrlRequiredError) {
      const ids = thrown.pages.map(({ elicitationId }) => elicitationId);
      const requests = thrown.pages.map(({ url, message }, i) => ({
        key: `url${i + 1}`,
        method: 'elicitation/create',
        params: RawObject.of({ mode: 'url', message, url }),
      }));
      return await this.#asked(exchange, upstream, requests, { kind: 'pages', upstream, ids });
    }
    throw thrown;
  }

  /** Questions for the client, and the sealed state that its answers come back with. */
  async #asked(
    { client, request }: OpenExchange,
    upstream: string,
    requests: readonly InputRequest[],
    state: RequestState,
  ): Promise<Answer> {
    const { sealer } = this.#parts;
    const sealed = await sealState(sealer, state, client.caller, request, Date.now() + STATE_MS);
    const inputRequests = requests.map((one) => ({
      ...one,
      params: one.params === undefined ? undefined : labelled(client, upstream, one.method, one.params),
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
  async #opened(
    method: string,
    upstream: string,
    ids: readonly string[],
    responses: RawObject | undefined,
  ): Promise<Answer | undefined> {
    const actions = ids.map((_, i) => responses?.object(`url${i + 1}`)?.string('action'));
    if (actions.some((action) => action !== undefined && action !== 'accept')) {
      const say = 'the page that has to be opened first was not opened';
      if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', say });
      return this.#own(method, toolFailure(say));
    }
    if (actions.every((action) => action === 'accept')) await this.#parts.completions.wait(upstream, ids, PAGE_MS);
    return undefined;
  }

  /** The call is another process's: it answers in our stead. @throws {GatewayError} `invalid-state` when it is gone. */
  #handed(visiting: Visiting, name: string): Promise<Answer> {
    const { request, caller, outlet } = visiting;
    const owner = this.#parts.owners.find(name);
    if (owner === undefined) throw new GatewayError('invalid-state', { say: 'the call is over; make it again' });
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const back = { sinceMs: outlet.sinceMs, send: (text: string) => outlet.send(text), answer: resolve };
    visiting.handedTo(owner.modern(request, caller, back));
    return promise;
  }

  #resumed(
    visiting: Visiting,
    { caller, affinity, logLevel }: Visit,
    state: { readonly park: string; readonly round: number },
    retry: Retry,
  ): Promise<Answer> {
    return this.#parts.parked.resume(state, retry.inputResponses, (exchange, rounds) => {
      exchange.attach(new Visit(caller, affinity, logLevel, rounds), visiting.request, visiting.outlet);
      visiting.took(exchange);
    });
  }
}

/** @throws {GatewayError} `header-mismatch` */
function checkHeaders({ params }: Request, { source }: Found, lookup: HeaderLookup): void {
  if (source === undefined || source.headerParams.length === 0) return;
  const fault = paramHeaderFault(source.headerParams, params?.object('arguments'), lookup);
  if (fault !== undefined) throw new GatewayError('header-mismatch', { say: fault });
}

import { capabilitiesAt } from '../catalog/merge.ts';
import type { ListName } from '../catalog/page.ts';
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
import { resolveTool, sourceOf } from '../catalog/catalog.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { Affinity, type Affinities } from './affinity.ts';
import { type Answers, toolFailure } from './answers.ts';
import { labelled } from './asks.ts';
import { type Calls, InputRequiredError, UrlRequiredError } from './calls.ts';
import type { Completions } from './completions.ts';
import type { Exchange } from './exchange.ts';
import type { ModernCaller, ModernCall, Outlet } from './front.ts';
import { Listen, readFilter } from './listen.ts';
import type { Links } from './links.ts';
import type { Lists } from './lists.ts';
import { OpenExchange } from './open-exchange.ts';
import type { Owners } from './owners.ts';
import type { Parked } from './parked.ts';
import type { Party } from './party.ts';
import { type Route, route } from './route.ts';
import type { Scouts } from './scouts.ts';
import type { Sealer } from './seal.ts';
import { type RequestState, sealState, unsealState } from './request-state.ts';
import { Rounds } from './rounds.ts';
import type { TaskIds } from './task-ids.ts';
import { TaskNews } from './task-news.ts';
import { mustDeclareTasks, type Tasks } from './tasks.ts';
import { Visit } from './visit.ts';

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
}

/** A state we gave out is good for this long where nothing waits for it: people need time. */
const STATE_MS = 3_600_000;

/** An upstream that was promised a page is opened says within this time that it was. */
const PAGE_MS = 20_000;

/** One request of a modern client while it is under way. */
class Visiting implements ModernCall {
  readonly answer: Promise<Answer>;
  exchange: OpenExchange | undefined;
  listen: Listen | undefined;
  /** The same request where its call is. */
  handed: ModernCall | undefined;
  /** Where it counts as under way. */
  counted: Affinity | undefined;
  readonly #request: Request;
  #isCancelled = false;

  constructor(request: Request, work: (visiting: Visiting) => Promise<Answer>) {
    this.#request = request;
    this.answer = work(this);
  }

  /** What is taken up after the client has gone ends at once. */
  took(exchange: OpenExchange): void {
    this.exchange = exchange;
    if (this.#isCancelled) exchange.cancel('the client has gone');
  }

  cancel(reason: string | undefined): void {
    this.#isCancelled = true;
    // A request made twice goes on as long as the later one is there.
    if (this.exchange?.request === this.#request) this.exchange.cancel(reason);
    this.handed?.cancel(reason);
    this.listen?.close();
  }

  close(): void {
    this.listen?.close();
  }
}

/** Answers requests of 2026-07-28, each of which stands alone. */
export class Modern {
  readonly #parts: ModernParts;

  constructor(parts: ModernParts) {
    this.#parts = parts;
  }

  /** Never rejects: every failure is an answer. `failed` says how one is told. */
  request(
    request: Request,
    caller: ModernCaller,
    outlet: Outlet,
    lookup: HeaderLookup | undefined,
    failed: (thrown: unknown) => Answer,
  ): Visiting {
    return new Visiting(request, async (visiting) => {
      try {
        const found = this.#parts.affinities.of(caller);
        const affinity = found instanceof Promise ? await found : found;
        const canBeAsked = affinity.profile !== '';
        const rounds = canBeAsked ? new Rounds(request.params?.object('inputResponses')) : undefined;
        const visit = new Visit(caller, affinity, caller.logLevel, rounds);
        const answering = this.#answer(visiting, request, visit, outlet, lookup);
        return answering instanceof Promise ? await answering : answering;
      } catch (thrown) {
        return failed(thrown);
      } finally {
        if (visiting.counted !== undefined) visiting.counted.underWay--;
      }
    });
  }

  #answer(
    visiting: Visiting,
    request: Request,
    visit: Visit,
    outlet: Outlet,
    lookup: HeaderLookup | undefined,
  ): Answer | Promise<Answer> {
    const { method } = request;
    const { affinity } = visit;
    const { scouts, lists } = this.#parts;
    const list = LISTS.get(method);
    if (list !== undefined) {
      const looking = scouts.look(affinity);
      if (looking === undefined) return lists.answer(affinity, list, request);
      return looking.then(() => lists.answer(affinity, list, request));
    }
    if (TASK_METHODS.has(method)) return this.#tasked(visiting, request, visit, outlet);
    switch (method) {
      case 'tools/call':
      case 'prompts/get':
      case 'resources/read':
      case 'completion/complete':
        return this.#routed(visiting, request, visit, outlet, lookup);
      case 'server/discover':
        return scouts.greet(visit.caller.view).then(() => this.#discovered(affinity));
      case 'subscriptions/listen':
        return this.#listened(visiting, request, visit, outlet);
      default:
        throw new GatewayError('method-not-found', { say: method });
    }
  }

  async #listened(visiting: Visiting, { id, method, params }: Request, visit: Visit, outlet: Outlet): Promise<Answer> {
    const { affinity, caller } = visit;
    const { kinds, uris, taskIds } = readFilter(params);
    if (taskIds.length > 0) mustDeclareTasks(caller, method);
    await this.#parts.scouts.look(affinity);
    const { links, tasks, taskIds: ids } = this.#parts;
    const news = new TaskNews({ ids, links, tasks }, visit);
    const listen = new Listen(id, outlet, affinity, links, kinds, news);
    visiting.listen = listen;
    return this.#own(method, await listen.run(uris, taskIds));
  }

  async #tasked(visiting: Visiting, request: Request, visit: Visit, outlet: Outlet): Promise<Answer> {
    const { affinity } = visit;
    const exchange = new OpenExchange(visit, affinity, request, outlet);
    // Not one of those that work: it must not be taken for the one an upstream asks.
    visiting.took(exchange);
    this.#enter(affinity);
    try {
      return await this.#parts.tasks.request(exchange);
    } finally {
      affinity.underWay--;
    }
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
  #enter(affinity: Affinity): void {
    if (affinity.underWay >= this.#parts.inFlightPerSession) {
      throw new GatewayError('overloaded', { say: `you have ${affinity.underWay} requests under way` });
    }
    affinity.underWay++;
  }

  async #routed(
    visiting: Visiting,
    request: Request,
    visit: Visit,
    outlet: Outlet,
    lookup: HeaderLookup | undefined,
  ): Promise<Answer> {
    const { affinity } = visit;
    this.#enter(affinity);
    visiting.counted = affinity;
    const retry = request.params === undefined ? undefined : readRetry(request.params);
    if (request.params !== undefined && retry === undefined) {
      throw new GatewayError('invalid-params', { say: '"inputResponses" must be an object, "requestState" a string' });
    }
    let to = route(affinity.catalog, request);
    if (to.kind === 'nowhere') {
      await this.#parts.scouts.look(affinity);
      to = route(affinity.catalog, request);
    }
    if (to.kind === 'nowhere') throw to.error;
    if (lookup !== undefined) this.#checkHeaders(request, affinity, lookup);

    let { params } = to;
    if (retry?.requestState !== undefined) {
      const state = await unsealState(this.#parts.sealer, retry.requestState, visit.caller, request);
      if (state.kind === 'park' && state.owner !== this.#parts.ownName) {
        return await this.#handed(visiting, request, visit, outlet, state.owner);
      }
      if (state.kind === 'park') return await this.#resumed(visiting, request, visit, outlet, state, retry);
      if (state.upstream !== to.upstream) throw new GatewayError('invalid-state');
      if (state.kind === 'pages') {
        const end = await this.#opened(request.method, to.upstream, state.ids, retry.inputResponses);
        if (end !== undefined) return end;
        params = withRetry(params, { inputResponses: undefined, requestState: undefined });
      } else {
        params = withRetry(params, { inputResponses: retry.inputResponses, requestState: state.inner });
      }
    }
    const upstream = this.#parts.upstreams.get(to.upstream);
    const isExclusive = affinity.profile !== '' && upstream?.needsOwnConnection === true;
    const party = affinity.at(to.upstream, isExclusive, (key) => new Affinity(key, visit.caller, affinity.catalog));
    const exchange = new OpenExchange(visit, party, request, outlet);
    exchange.upstream = to.upstream;
    exchange.tool = to.tool;
    visiting.took(exchange);
    party.working.add(exchange);
    const work = this.#worked(exchange, params === to.params ? to : { ...to, params }, party);
    // Who cannot be asked is not asked, and a modern upstream asks in its answer.
    if (visit.rounds === undefined || upstream?.isModern === true) return await work;
    const settled = work.catch((thrown: unknown) => toAnswer(thrown));
    return await this.#parts.parked.follow(exchange, to.upstream, visit.rounds, settled);
  }

  /** Forwards, and gives a modern upstream's questions on to the client, under a seal. */
  async #worked(exchange: OpenExchange, to: Extract<Route, { kind: 'upstream' }>, party: Affinity): Promise<Answer> {
    try {
      const answer = await this.#parts.calls.forward(exchange, to);
      // It asked what it could not, and made something of the refusal.
      if (exchange.failure !== undefined) throw exchange.failure;
      return answer;
    } catch (thrown) {
      if (exchange.failure !== undefined) throw exchange.failure;
      const { upstream } = to;
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
    } finally {
      party.working.delete(exchange);
    }
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
  async #handed(
    visiting: Visiting,
    request: Request,
    { caller, logLevel }: Visit,
    outlet: Outlet,
    name: string,
  ): Promise<Answer> {
    const owner = this.#parts.owners.find(name);
    if (owner === undefined) throw new GatewayError('invalid-state', { say: 'the call is over; make it again' });
    visiting.handed = owner.modern(request, { ...caller, revision: MODERN, logLevel }, outlet);
    return await visiting.handed.answer;
  }

  async #resumed(
    visiting: Visiting,
    request: Request,
    { caller, affinity, logLevel }: Visit,
    outlet: Outlet,
    state: { readonly park: string; readonly round: number },
    retry: Retry,
  ): Promise<Answer> {
    return await this.#parts.parked.resume(state, retry.inputResponses, (exchange, rounds) => {
      exchange.attach(new Visit(caller, affinity, logLevel, rounds), request, outlet);
      visiting.took(exchange);
    });
  }

  /** @throws {GatewayError} `header-mismatch` */
  #checkHeaders({ method, params }: Request, { catalog }: Affinity, lookup: HeaderLookup): void {
    if (method !== 'tools/call') return;
    const owner = resolveTool(catalog, params?.string('name') ?? '');
    const mirrored = owner === undefined ? undefined : sourceOf(catalog, owner)?.mirrored;
    if (mirrored === undefined || mirrored.length === 0) return;
    const fault = paramHeaderFault(mirrored, params?.object('arguments'), lookup);
    if (fault !== undefined) throw new GatewayError('header-mismatch', { say: fault });
  }
}

const LISTS: ReadonlyMap<string, ListName> = new Map([
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
]);

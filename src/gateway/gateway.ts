import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { ListName } from '../catalog/page.ts';
import { errorToClient, toClient } from '../catalog/rewrite.ts';
import type { View, ViewUpstream } from '../catalog/view.ts';
import { GatewayError, toAnswer, toGatewayError } from '../errors.ts';
import type { Principal } from '../policy/principal.ts';
import { JsonTextError, RawObject } from '../protocol/json.ts';
import type { Answer, Notification, Request, Response } from '../protocol/jsonrpc.ts';
import { lowerResult } from '../protocol/lower.ts';
import { negotiate } from '../protocol/revisions.ts';
import type { RequestLog } from '../telemetry/request-log.ts';
import { errorTypeOf, type ErrorType } from '../telemetry/operation.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { elicitationIdToClient } from './asks.ts';
import type { Caller } from './caller.ts';
import { OpenExchange } from './open-exchange.ts';
import type { ClientSession, Front, Outlet } from './front.ts';
import type { Links } from './links.ts';
import type { Lists } from './lists.ts';
import { isSeverity } from './log-level.ts';
import { ownerOf, type Route, route } from './route.ts';
import type { Scouts } from './scouts.ts';
import { type Exchange, Session } from './session.ts';
import type { Sessions } from './sessions.ts';

export interface GatewayParts {
  readonly views: ReadonlyMap<string, View>;
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Session>>;
  readonly sessions: Sessions;
  readonly scouts: Scouts;
  readonly links: Links;
  readonly lists: Lists;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly requestLog: RequestLog | undefined;
  readonly serverInfo: RawObject;
  readonly inFlightPerSession: number;
}

const EMPTY: Answer = { kind: 'result', result: '{}' };

const LISTS: ReadonlyMap<string, ListName> = new Map([
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
]);

/** How long after refusing a message an upstream's end has certainly been noticed. */
const RESEND_MS = 150;

/** URL_ELICITATION_REQUIRED of 2025-11-25. */
const NEEDS_URL = -32042;

/** The middle: answers what it can from its own knowledge, and carries the rest to the one upstream it belongs to. */
export class Gateway implements Front {
  readonly #parts: GatewayParts;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
  }

  hasView(view: string): boolean {
    return this.#parts.views.has(view);
  }

  async initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }> {
    try {
      const { params } = request;
      const asked = params?.string('protocolVersion');
      if (params === undefined || asked === undefined) {
        throw new GatewayError('invalid-params', { say: 'initialize needs "protocolVersion"' });
      }
      const revision = negotiate(asked);
      await this.#parts.scouts.greet(view);
      const session = await this.#parts.sessions.open({
        principal,
        view,
        revision,
        capabilities: params.object('capabilities') ?? RawObject.EMPTY,
      });
      const { capabilities, instructions } = session.catalog;
      const result = RawObject.EMPTY.with('protocolVersion', JSON.stringify(revision))
        .with('capabilities', capabilities.toString())
        .with('serverInfo', this.#parts.serverInfo.toString())
        .with('instructions', instructions === undefined ? undefined : JSON.stringify(instructions));
      return { session, answer: { kind: 'result', result: result.toString() } };
    } catch (thrown) {
      return { session: undefined, answer: this.#failed(thrown, 'initialize') };
    }
  }

  session(
    id: string,
    principal: Principal,
    view: string,
  ): ClientSession | undefined | Promise<ClientSession | undefined> {
    return this.#parts.sessions.find(id, principal, view);
  }

  async request(clientSession: ClientSession, request: Request, outlet: Outlet): Promise<Answer> {
    const session = own(clientSession);
    const { metrics } = this.#parts;
    const startedMs = performance.now();
    metrics.requestsInFlight.add();
    let exchange: OpenExchange | undefined;
    let answer: Answer;
    try {
      exchange = this.#begin(session, request, outlet);
      let to = ROUTED.has(request.method) ? route(session.catalog, request) : undefined;
      if (to?.kind === 'nowhere') {
        // A client may call before it lists, and what it calls be offered only to clients with its features.
        await this.#parts.scouts.look(session);
        to = route(session.catalog, request);
      }
      if (to?.kind === 'upstream') exchange.tool = to.tool;
      const answering = to === undefined ? this.#answer(exchange) : this.#forward(exchange, to);
      answer = answering instanceof Promise ? await answering : answering;
    } catch (thrown) {
      answer = this.#failed(thrown, request.method);
    }
    if (exchange !== undefined) session.inFlight.delete(request.id);
    session.usedMs = performance.now();
    metrics.requestsInFlight.remove();
    this.#served(session.caller, request, exchange, answer, session.usedMs - startedMs);
    return answer;
  }

  /** Counts it, and leaves one line about it in the log: who asked what of whom and how it ended, without what was said. */
  #served(
    { principal, revision }: Caller,
    { method }: Request,
    exchange: OpenExchange | undefined,
    answer: Answer,
    durationMs: number,
  ): void {
    const error = errorTypeOf(method, answer);
    const { tool, upstream } = exchange ?? {};
    this.#parts.metrics.served({ method, tool, error, revision, transport: 'tcp' }, durationMs / 1000);
    const line = { method, tool, upstream, principal: principal.label, revision, error, ms: durationMs };
    this.#parts.requestLog?.write(line);
  }

  #begin(session: Session, request: Request, outlet: Outlet): OpenExchange {
    const { id } = request;
    if (session.inFlight.has(id)) {
      throw new GatewayError('invalid-request', { say: `a request with id ${id} is already under way` });
    }
    if (session.inFlight.size >= this.#parts.inFlightPerSession) {
      throw new GatewayError('overloaded', { say: `this session has ${session.inFlight.size} requests under way` });
    }
    const exchange = new OpenExchange(session, request, outlet);
    session.inFlight.set(id, exchange);
    return exchange;
  }

  #answer(exchange: Exchange): Answer | Promise<Answer> {
    const { session, request } = exchange;
    const list = LISTS.get(request.method);
    if (list !== undefined) {
      const { scouts, lists } = this.#parts;
      const looking = scouts.look(session);
      if (looking === undefined) return lists.answer(session, list, request);
      return looking.then(() => lists.answer(session, list, request));
    }
    switch (request.method) {
      case 'ping':
        return EMPTY;
      case 'logging/setLevel':
        return this.#setLevel(session, request);
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return this.#subscription(session, request);
      case 'initialize':
        throw new GatewayError('invalid-request', { say: 'this session is initialized already' });
      default:
        throw new GatewayError('method-not-found', { say: request.method });
    }
  }

  async #setLevel(session: Session, { params }: Request): Promise<Answer> {
    const level = params?.string('level');
    if (!isSeverity(level))
      throw new GatewayError('invalid-params', { say: `no such log level: ${level ?? '(none)'}` });
    session.logLevel = level;
    await this.#parts.sessions.save(session);
    await this.#parts.links.levelChanged(session);
    return EMPTY;
  }

  async #subscription(session: Session, { method, params }: Request): Promise<Answer> {
    const uri = params?.string('uri');
    if (uri === undefined) throw new GatewayError('invalid-params', { say: '"uri" must be a string' });
    const owner = session.subscriptions.get(uri) ?? ownerOf(session.catalog, uri);
    if (owner instanceof GatewayError) throw owner;
    const to = { upstream: owner.upstream, uri: owner.uri };
    const { links, sessions } = this.#parts;
    const answer =
      method === 'resources/subscribe'
        ? await links.subscribe(session, uri, to)
        : await links.unsubscribe(session, uri, to);
    await sessions.save(session);
    return answer;
  }

  async #forward(exchange: OpenExchange, to: Route): Promise<Answer> {
    if (to.kind === 'nowhere') throw to.error;
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) throw new GatewayError('internal-error');
    exchange.upstream = to.upstream;
    const entering = exchange.enter(upstream.gate);
    if (entering !== undefined) await entering;
    try {
      const answer = await this.#call(exchange, upstream, to.params);
      return this.#toClient(exchange, upstream.id, answer);
    } finally {
      exchange.leave();
    }
  }

  async #call(exchange: OpenExchange, upstream: Upstream<Exchange, Session>, params: RawObject): Promise<Answer> {
    const { session, request, progressToken } = exchange;
    const { callMs, maxMs } = upstream.config.timeouts;
    for (let attempt = 1; ; attempt++) {
      const { links } = this.#parts;
      const ready = links.ready(session, upstream.id);
      const link = ready ?? (await exchange.unlessCancelled(links.of(session, upstream.id)));
      link.usedMs = performance.now();
      const call = link.connection.call(request.method, params, {
        timeoutMs: callMs,
        maxMs,
        progress: progressToken !== undefined,
        owner: exchange,
      });
      exchange.begin(call);
      try {
        const answer = await call.answer;
        link.served = true;
        this.#called(exchange, upstream, link, errorTypeOf(request.method, answer));
        return answer;
      } catch (thrown) {
        this.#called(exchange, upstream, link, toGatewayError(thrown).code);
        if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
        // A process that ended is known to be gone only a moment after it takes nothing any more.
        if (links.ready(session, upstream.id) === link) await sleep(RESEND_MS);
      } finally {
        upstream.release(link);
      }
    }
  }

  #called(
    { request, tool }: OpenExchange,
    upstream: Upstream<Exchange, Session>,
    link: Link<Exchange, Session>,
    error: ErrorType | undefined,
  ): void {
    const transport = upstream.config.target.kind === 'stdio' ? 'pipe' : 'tcp';
    const operation = { method: request.method, tool, error, revision: link.hello.revision, transport } as const;
    this.#parts.metrics.called(upstream.id, operation, (performance.now() - link.usedMs) / 1000);
  }

  #toClient(exchange: Exchange, upstream: string, answer: Answer): Answer {
    const { session, request } = exchange;
    const seat = session.catalog.view.upstreams.find(({ id }) => id === upstream);
    if (seat === undefined) return answer;
    if (answer.kind === 'error') {
      const error = errorToClient(answer.error, seat);
      if (error.code !== NEEDS_URL) return { kind: 'error', error };
      return { kind: 'error', error: { ...error, data: elicitationsToClient(session, upstream, error.data) } };
    }
    const result = this.#resultToClient(session, request.method, seat, answer.result);
    return result === answer.result ? answer : { kind: 'result', result };
  }

  #resultToClient(session: Session, method: string, seat: ViewUpstream, result: string): string {
    try {
      return lowerResult(method, session.caller.revision, toClient(method, seat, result));
    } catch (thrown) {
      if (!(thrown instanceof JsonTextError)) throw thrown;
      const say = `upstream "${seat.id}" answered ${method} with what is not well-formed JSON`;
      throw new GatewayError('upstream-protocol', { upstream: seat.id, executed: 'yes', say }, thrown);
    }
  }

  notification(clientSession: ClientSession, notification: Notification): void {
    try {
      this.#noted(own(clientSession), notification);
    } catch (thrown) {
      if (!(thrown instanceof JsonTextError)) throw thrown;
      this.#parts.log.debug({ method: notification.method }, 'broken notification ignored');
    }
  }

  #noted(session: Session, { method, params }: Notification): void {
    switch (method) {
      case 'notifications/initialized':
        session.isInitialized = true;
        return;
      case 'notifications/cancelled':
        session.inFlight.get(params?.raw('requestId') ?? '')?.cancel(params?.string('reason'));
        return;
      case 'notifications/progress':
        if (params !== undefined) session.progressed(params);
        return;
      case 'notifications/roots/list_changed':
        this.#rootsChanged(session);
        return;
      default:
        this.#parts.log.debug({ method }, 'notification ignored');
    }
  }

  #rootsChanged(session: Session): void {
    if (session.offered.object('roots')?.raw('listChanged') !== 'true') return;
    for (const opening of session.links.values()) {
      opening.then(
        (link) => {
          if (!link.shared) link.connection.notify('notifications/roots/list_changed');
        },
        () => undefined,
      );
    }
  }

  response(clientSession: ClientSession, response: Response): void {
    own(clientSession).answered(response.id, response);
  }

  end(clientSession: ClientSession): Promise<void> {
    return this.#parts.sessions.end(own(clientSession));
  }

  #failed(thrown: unknown, method: string): Answer {
    // A client's parameters are cut open only where they are needed, and may turn out broken there.
    const isBroken = thrown instanceof JsonTextError;
    const error = isBroken ? new GatewayError('invalid-params', { say: thrown.message }) : toGatewayError(thrown);
    const level = error.code === 'internal-error' ? 'error' : 'info';
    this.#parts.log[level](
      { err: error, code: error.code, method, ...error.detail },
      'request not answered by an upstream',
    );
    if (error.code === 'overloaded') this.#parts.metrics.shed(error.code);
    return toAnswer(error);
  }
}

/** Methods that belong to one upstream. */
const ROUTED = new Set(['tools/call', 'prompts/get', 'resources/read', 'completion/complete']);

/** Only what the upstream said it did not take may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const executed = thrown.detail.executed ?? thrown.row.executed;
  return executed === 'no' && (thrown.code === 'upstream-session-lost' || thrown.code === 'upstream-lost');
}

function own(session: ClientSession): Session {
  if (session instanceof Session) return session;
  throw new TypeError('a session of another gateway');
}

function elicitationsToClient(session: Session, upstream: string, data: unknown): unknown {
  if (typeof data !== 'object' || data === null || !('elicitations' in data)) return data;
  const { elicitations } = data;
  if (!Array.isArray(elicitations)) return data;
  const mapped = elicitations.map((elicitation: unknown) => {
    if (typeof elicitation !== 'object' || elicitation === null || !('elicitationId' in elicitation))
      return elicitation;
    const id = elicitationIdToClient(session, upstream, String(elicitation.elicitationId));
    return { ...elicitation, elicitationId: id };
  });
  return { ...data, elicitations: mapped };
}

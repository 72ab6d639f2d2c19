import type { Logger } from 'pino';
import { capabilitiesAt } from '../catalog/merge.ts';
import type { View } from '../catalog/view.ts';
import { GatewayError, toAnswer, toGatewayError } from '../errors.ts';
import type { Principal } from '../policy/principal.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import { type Answer, DONE, type Notification, type Request, type Response } from '../protocol/jsonrpc.ts';
import type { HeaderLookup } from '../protocol/mcp-headers.ts';
import { detach } from '../json/memo.ts';
import { negotiate } from '../protocol/revisions.ts';
import { TASK_METHODS } from '../protocol/tasks.ts';
import type { RequestLog } from '../telemetry/request-log.ts';
import { errorTypeOf } from '../telemetry/operation.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Affinities } from './affinity.ts';
import { type Answers, raisedAnswer } from './answers.ts';
import type { Caller } from './caller.ts';
import { Calls } from './calls.ts';
import type { ClientTasks } from './client-tasks.ts';
import type { Completions } from './completions.ts';
import type { Exchange } from './exchange.ts';
import type { ClientSession, Front, ModernCall, ModernCaller, ModernOutlet, Outlet } from './front.ts';
import type { Links } from './links.ts';
import { LISTS, type Lists } from './lists.ts';
import { isSeverity } from '../protocol/severity.ts';
import { Modern } from './modern.ts';
import { OpenExchange } from './open-exchange.ts';
import type { Owners } from './owners.ts';
import type { Parked } from './parked.ts';
import type { Party } from './party.ts';
import type { Reads } from './reads.ts';
import { ownerOf, route } from './route.ts';
import type { Scouts } from './scouts.ts';
import type { Sealer } from './seal.ts';
import { RaisedTasks } from './raised-tasks.ts';
import { Sender } from './sender.ts';
import { Session } from './session.ts';
import type { Sessions } from './sessions.ts';
import { TaskCalls } from './task-calls.ts';
import { TaskDriver } from './task-driver.ts';
import type { TaskIds } from './task-ids.ts';
import { Tasks } from './tasks.ts';

export interface GatewayParts {
  readonly views: ReadonlyMap<string, View>;
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>;
  readonly sessions: Sessions;
  readonly scouts: Scouts;
  readonly links: Links;
  readonly lists: Lists;
  readonly answers: Answers;
  readonly reads: Reads;
  readonly affinities: Affinities;
  readonly parked: Parked;
  readonly completions: Completions;
  readonly sealer: Sealer;
  readonly taskIds: TaskIds;
  readonly clientTasks: ClientTasks;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly requestLog: RequestLog | undefined;
  readonly serverInfo: RawObject;
  readonly inFlightPerSession: number;
  readonly owners: Owners;
  readonly ownName: string;
  readonly tasksPerPrincipal: number;
}

/** The middle: answers what it can from its own knowledge, and carries the rest to the one upstream it belongs to. */
export class Gateway implements Front {
  readonly #parts: GatewayParts;
  readonly #calls: Calls;
  readonly #modern: Modern;
  readonly #tasks: Tasks;
  #underWay = 0;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
    const sender = new Sender(parts.metrics);
    const driver = new TaskDriver(sender);
    const { answers, taskIds: ids, tasksPerPrincipal: perPrincipal } = parts;
    const raised = new RaisedTasks({ sender, answers, perPrincipal });
    this.#calls = new Calls({ ...parts, sender, taskCalls: new TaskCalls({ sender, answers, ids, driver, raised }) });
    this.#tasks = new Tasks({ ...parts, sender, ids, raised });
    this.#modern = new Modern({
      ...parts,
      calls: this.#calls,
      tasks: this.#tasks,
      failed: (thrown, method) => raisedAnswer(this.#failed(thrown, method)),
      served: (caller, request, exchange, answer, durationMs) =>
        this.#served(caller, request, exchange, answer, durationMs),
    });
  }

  /** Requests that are not answered yet. */
  get underWay(): number {
    return this.#underWay;
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
        // Kept as long as the session, unlike the rest of the message.
        capabilities: RawObject.parse(detach(params.object('capabilities')?.toString() ?? '{}')),
      });
      const { capabilities, instructions } = session.catalog;
      const result = RawObject.EMPTY.with('protocolVersion', JSON.stringify(revision))
        .with('capabilities', capabilitiesAt(revision, capabilities).toString())
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
    const startedMs = performance.now();
    this.#begun();
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
      const answering = to === undefined ? this.#answer(session, exchange) : this.#calls.forward(exchange, to);
      answer = answering instanceof Promise ? await answering : answering;
    } catch (thrown) {
      answer = this.#failed(thrown, request.method);
    }
    if (exchange !== undefined) session.inFlight.delete(request.id);
    session.usedMs = performance.now();
    this.#served(session.caller, request, exchange, answer, session.usedMs - startedMs);
    return answer;
  }

  modern(request: Request, caller: ModernCaller, outlet: ModernOutlet, lookup: HeaderLookup | undefined): ModernCall {
    this.#begun();
    return this.#modern.request(request, caller, outlet, lookup);
  }

  #begun(): void {
    this.#underWay++;
    this.#parts.metrics.requestsInFlight.add();
  }

  /** Counts it, and leaves one line about it in the log: who asked what of whom and how it ended, without what was said. */
  #served(
    { principal, revision }: Caller,
    { method }: Request,
    exchange: OpenExchange | undefined,
    answer: Answer,
    durationMs: number,
  ): void {
    this.#underWay--;
    this.#parts.metrics.requestsInFlight.remove();
    const { tool, upstream, ended } = exchange ?? {};
    const error = ended?.answer === answer ? ended.error : errorTypeOf(method, answer);
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
    const exchange = new OpenExchange(session, session, request, outlet);
    session.inFlight.set(id, exchange);
    return exchange;
  }

  #answer(session: Session, exchange: OpenExchange): Answer | Promise<Answer> {
    const { request } = exchange;
    if (TASK_METHODS.has(request.method)) return this.#tasks.request(exchange);
    const list = LISTS.get(request.method);
    if (list !== undefined) return this.#parts.lists.answer(session, list, request);
    switch (request.method) {
      case 'ping':
        return DONE;
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
    return DONE;
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
      case 'notifications/tasks/status':
        if (params !== undefined) this.#parts.clientTasks.told(session, params);
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

function own(session: ClientSession): Session {
  if (session instanceof Session) return session;
  throw new TypeError('a session of another gateway');
}

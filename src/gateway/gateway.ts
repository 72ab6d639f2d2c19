import type { SharedParts } from './records/shared-parts.ts';
import { MAX_HOPS, SESSION_ENDED } from './exchange/owners.ts';
import { capabilitiesAt } from '../catalog/merge.ts';
import type { Settings } from '../config/values/config.ts';
import { GatewayError } from '../errors.ts';
import type { Principal } from '../policy/principal.ts';
import { RawObject } from '../json/json.ts';
import {
  type Answer,
  EMPTY_RESULT,
  idKey,
  type Notification,
  type Request,
  type Response,
} from '../protocol/jsonrpc.ts';
import { carriedParams } from '../protocol/cancellation.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import { featuresOf, negotiate } from '../protocol/revisions.ts';
import { UPSTREAM_DIALECTS } from './dialects/upstream-dialect.ts';
import { capabilityKeyOf, forwardableCapabilities } from './exchange/client-capabilities.ts';
import { isAnswer } from './calls/call-outcome.ts';
import type { Calls } from './calls/calls.ts';
import type { ClientTasks } from './questions/client-tasks.ts';
import type {
  ClientSession,
  Front,
  ModernCall,
  ModernCaller,
  ModernSink,
  MessageSink,
  Owner,
  Ownership,
} from './front/front.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import { isSeverity } from '../protocol/severity.ts';
import type { ModernRequests } from './modern/modern-requests.ts';
import { OpenExchange } from './exchange/open-exchange.ts';
import type { RequestRecorder } from './records/request-recorder.ts';
import type { UpstreamRoute } from './exchange/route.ts';
import { Dispatcher, type DispatcherParts, tooManyInFlight } from './calls/dispatcher.ts';
import { isPrivate } from '../upstream/link/link.ts';
import { Session } from './clients/session.ts';
import type { SeenClients } from './clients/seen-clients.ts';
import type { SessionClient } from './clients/session-client.ts';
import type { Sessions } from './clients/sessions.ts';
import { SessionSubscriptions, type SessionSubscriptionsParts } from './session-subscriptions.ts';
import type { Tasks } from './tasks/tasks.ts';

export interface GatewayParts
  extends DispatcherParts, SessionSubscriptionsParts, Pick<SharedParts, 'views' | 'owners' | 'log' | 'onLimit'> {
  readonly sessions: Sessions;
  readonly seenClients: Pick<SeenClients, 'record'>;
  readonly links: HolderLinks;
  readonly calls: Pick<Calls, 'send'>;
  readonly tasks: Pick<Tasks, 'request'>;
  readonly clientTasks: Pick<ClientTasks, 'onStatus'>;
  readonly modernRequests: Pick<ModernRequests, 'request'>;
  readonly recorder: RequestRecorder;
  readonly serverInfo: RawObject;
  readonly settings: Settings<'limits'>;
}

/** The core: answers requests that need no upstream, and sends every other one to exactly one. */
export class Gateway implements Front {
  readonly #parts: GatewayParts;
  readonly #dispatcher: Dispatcher<OpenExchange<Session>, SessionClient>;
  readonly #subscriptions: SessionSubscriptions;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
    this.#subscriptions = new SessionSubscriptions(parts);
    this.#dispatcher = new Dispatcher(parts, {
      call: (exchange, _client, to) => this.#call(exchange, to),
      runTask: (exchange) => this.#runTask(exchange),
      answer: (exchange, client) => this.#answer(exchange, client),
    });
  }

  hasView(view: string, principal?: Principal): boolean {
    const { views, gate } = this.#parts;
    const found = views.get(view);
    return found !== undefined && (principal === undefined || gate.mayEnter(found, principal));
  }

  reportHiddenView(view: string, principal: Principal): boolean {
    const { views, gate } = this.#parts;
    const found = views.get(view);
    if (found !== undefined) gate.reportHiddenView(found, principal);
    return found !== undefined;
  }

  async initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }> {
    const { recorder } = this.#parts;
    const startedMs = performance.now();
    recorder.beginUntraced();
    const opened = await this.#open(request, principal, view);
    const { session, answer } = opened;
    const caller = session?.caller ?? { principal, view };
    const durationMs = performance.now() - startedMs;
    recorder.end({ caller, holder: session, request, exchange: undefined, answer, durationMs, span: undefined });
    if (session !== undefined) recorder.sessionOpened(session);
    return opened;
  }

  /** Opens the session of an `initialize` request. Every failure is an answer. */
  async #open(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: Session | undefined; readonly answer: Answer }> {
    try {
      const { params } = request;
      const asked = params?.string('protocolVersion');
      if (params === undefined || asked === undefined) {
        throw new GatewayError('invalid-params', { message: 'initialize needs "protocolVersion"' });
      }
      const revision = negotiate(asked);
      // Copied, since the session outlives the text of the message.
      const capabilities = params.object('capabilities')?.detached() ?? RawObject.EMPTY;
      const clientCapabilities = forwardableCapabilities(capabilities, featuresOf(revision), this.#parts.onLimit);
      const capabilityKey = capabilityKeyOf(clientCapabilities);
      const client = { era: 'legacy', principal: principal.key, clientCapabilities, capabilityKey } as const;
      const { sessions, listRefresher } = this.#parts;
      const session = await sessions.open({ principal, view, revision, capabilities }, () =>
        listRefresher.beginFirstLists(view, client),
      );
      this.#parts.seenClients.record(session.caller, params.object('clientInfo'), Date.now());
      const declared = this.#parts.listRefresher.capabilitiesFor(session, session.catalog);
      const result = RawObject.EMPTY.with('protocolVersion', JSON.stringify(revision))
        .with('capabilities', capabilitiesAt(revision, declared).toString())
        .with('serverInfo', this.#parts.serverInfo.toString())
        .with('instructions', this.#dispatcher.instructionsOf(session.catalog));
      return { session, answer: { kind: 'result', result: result.toString() } };
    } catch (thrown) {
      return { session: undefined, answer: this.#parts.recorder.fail(thrown, { request, principal }) };
    }
  }

  hasSession(id: string): boolean {
    return this.#parts.sessions.isCertainlyHere(id);
  }

  ownerOfSession(
    id: string,
    principal: Principal,
    view: string,
    isForwarded?: boolean,
  ): Ownership | Promise<Ownership> {
    return this.#parts.sessions.ownerOf(id, principal, view, isForwarded);
  }

  successor(): Owner | undefined {
    return this.#parts.owners.successor();
  }

  get processName(): string | undefined {
    const { owners } = this.#parts;
    return owners.isAlone ? undefined : owners.name;
  }

  ownerOfStream(process: string): Ownership | Promise<Ownership> {
    return this.#parts.owners.ownerOf({ kind: 'stream', process });
  }

  findSession(
    id: string,
    principal: Principal,
    view: string,
  ): ClientSession | undefined | Promise<ClientSession | undefined> {
    return this.#parts.sessions.find(id, principal, view);
  }

  async handleRequest(
    clientSession: ClientSession,
    request: Request,
    sink: MessageSink,
    headers?: HeaderLookup,
    principal?: Principal,
  ): Promise<Answer | undefined> {
    const session = Session.from(clientSession);
    // Another request may bring other claims while this one waits.
    const client = session.clientOf(principal ?? session.caller.principal);
    const startedMs = performance.now();
    const span = this.#parts.recorder.begin(request, headers);
    let exchange: OpenExchange<Session> | undefined;
    let answer: Answer;
    try {
      exchange = this.#begin(session, client, request, sink);
      exchange.span = span;
      answer = await this.#dispatcher.answer(exchange, client, session);
    } catch (thrown) {
      answer = this.#parts.recorder.fail(thrown, { request, principal: client.caller.principal, span });
    }
    if (exchange !== undefined) session.removeExchange(exchange);
    // A stream would take the place of an HTTP response that asks for further scopes.
    const isChallenge = answer.kind === 'error' && answer.scopes !== undefined;
    if (exchange?.isCancelledByClient === false && !isChallenge) session.sendWaiting(exchange);
    session.usedMs = performance.now();
    const durationMs = session.usedMs - startedMs;
    const answered = { caller: client.caller, describedBy: session.caller, holder: session, request, exchange };
    this.#parts.recorder.end({ ...answered, answer, durationMs, span });
    if (exchange?.isTaskCall === true) exchange.forgetCall();
    return exchange?.isCancelledByClient === true ? undefined : answer;
  }

  handleModernRequest(
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    headers: HeaderLookup | undefined,
  ): ModernCall {
    this.#parts.seenClients.record(caller, caller.clientInfo, Date.now());
    return this.#parts.modernRequests.request(request, caller, sink, headers);
  }

  #begin(session: Session, client: SessionClient, request: Request, sink: MessageSink): OpenExchange<Session> {
    const { id } = request;
    const key = idKey(id);
    // Over Streamable HTTP each request has a sink of its own, and clients such as claude.ai send the same id with all of them.
    if (session.inFlight.some((one) => one.sink === sink && idKey(one.request.id) === key)) {
      throw new GatewayError('invalid-request', { message: `a request with id ${id} is already in flight` });
    }
    // Clients that get no answer to a ping give their session up, with all that is under way.
    if (request.method !== 'ping' && session.inFlight.size >= this.#parts.settings().limits.inFlightPerSession) {
      throw tooManyInFlight(session.inFlight.size);
    }
    const exchange = new OpenExchange(client, session, request, sink);
    session.addExchange(exchange);
    return exchange;
  }

  #answer(exchange: OpenExchange<Session>, client: SessionClient): Answer | Promise<Answer> {
    const { holder: session, request } = exchange;
    switch (request.method) {
      case 'ping':
        return EMPTY_RESULT;
      case 'logging/setLevel':
        return this.#setLevel(session, client, request);
      case 'resources/subscribe':
        return this.#subscriptions.subscribe(exchange, client);
      case 'resources/unsubscribe':
        return this.#subscriptions.unsubscribe(exchange, client);
      case 'initialize':
        throw new GatewayError('invalid-request', { message: 'this session is initialized already' });
      default:
        throw new GatewayError('method-not-found', { message: request.method });
    }
  }

  /** A client with a session is asked while its call goes on, so that an answer is left at the end. */
  async #call(exchange: OpenExchange, to: UpstreamRoute): Promise<Answer> {
    exchange.setTool(to);
    const outcome = await this.#parts.calls.send(exchange, to);
    if (isAnswer(outcome)) return outcome;
    throw new GatewayError('internal-error', { message: `a call of a session ended with ${outcome.kind}` });
  }

  async #runTask(exchange: OpenExchange): Promise<Answer> {
    const outcome = await this.#parts.tasks.request(exchange);
    // The tasks of a session are where the session is.
    if (outcome.kind === 'elsewhere') throw new GatewayError('unknown-task');
    return outcome;
  }

  async #setLevel(session: Session, { caller }: SessionClient, request: Request): Promise<Answer> {
    const { params } = request;
    const level = params?.string('level');
    if (!isSeverity(level))
      throw new GatewayError('invalid-params', { message: `no such log level: ${level ?? '(none)'}` });
    await this.#parts.audit?.begin(request, caller, undefined);
    await this.#parts.sessions.save(session, { kind: 'level', level });
    session.logLevel = level;
    await this.#parts.links.levels.setAll(session);
    return EMPTY_RESULT;
  }

  handleNotification(clientSession: ClientSession, notification: Notification): void {
    const session = Session.from(clientSession);
    this.#parts.recorder.message(session.caller, session, notification);
    const { method, params } = notification;
    switch (method) {
      case 'notifications/initialized':
        session.isInitialized = true;
        return;
      case 'notifications/cancelled':
        if (!this.#takes(session, notification)) this.#passToFormer(session, notification);
        return;
      case 'notifications/progress':
        if (!this.#takes(session, notification)) this.#passToFormer(session, notification);
        return;
      case 'notifications/roots/list_changed':
        this.#notifyRootsChanged(session, params && carriedParams(params));
        return;
      case 'notifications/tasks/status':
        if (params !== undefined) this.#parts.clientTasks.onStatus(session, params);
        return;
      default:
        this.#parts.log.debug({ method }, 'notification ignored');
    }
  }

  /** Cancels a request for the client, if only one can be meant. Returns false if none of its id is in flight here. */
  #cancel(session: Session, params: RawObject | undefined): boolean {
    const key = idKey(params?.raw('requestId') ?? '');
    const [exchange, ...others] = [...session.inFlight].filter(({ request }) => idKey(request.id) === key);
    if (others.length === 0) exchange?.cancelByClient(params && carriedParams(params));
    else this.#parts.log.debug('cancellation ignored: several requests in flight have its id');
    return exchange !== undefined;
  }

  #notifyRootsChanged(session: Session, params: RawObject | undefined): void {
    if (session.clientCapabilities.object('roots')?.raw('listChanged') !== 'true') return;
    for (const opening of session.linkPromises.values()) {
      opening.then(
        (link) => {
          const knowsRoots =
            UPSTREAM_DIALECTS[link.era].keepsClientState && link.clientCapabilities.raw('roots') !== undefined;
          if (isPrivate(link) && knowsRoots) link.connection.notify('notifications/roots/list_changed', params);
        },
        () => undefined,
      );
    }
  }

  noteNotification(sender: Pick<ModernCaller, 'principal' | 'view'>, notification: Notification): void {
    this.#parts.recorder.message(sender, undefined, notification);
  }

  handleResponse(clientSession: ClientSession, response: Response): void {
    const session = Session.from(clientSession);
    this.#parts.recorder.message(session.caller, session, response);
    if (!this.#takes(session, response)) this.#passToFormer(session, response);
  }

  /** Handles an answer, a cancellation or progress, if it is about something that this session has here. Returns false if not. */
  #takes(session: Session, message: Notification | Response): boolean {
    if (message.kind !== 'notification') return session.onResponse(message.id, message);
    const { method, params } = message;
    if (method === 'notifications/cancelled') return this.#cancel(session, params);
    return params === undefined || session.onProgress(params);
  }

  /** Passes a message on to the processes that had the session before. This one is among them if the session has come back to it. */
  #passToFormer(session: Session, message: Notification | Response): void {
    const { sessions } = this.#parts;
    if (sessions.leaving.of(session.id).some((left) => this.#takes(left, message))) return;
    for (const former of sessions.formersOf(session)) void former.handleMessage(session, message);
  }

  async handleLateMessage(
    id: string,
    principal: Principal,
    view: string,
    message: Notification | Response,
    hops = 0,
  ): Promise<void> {
    const { recorder, sessions } = this.#parts;
    const found = sessions.findLeaving(id, principal, view);
    const [latest] = found;
    if (latest === undefined) return;
    const isEnd = message.kind === 'notification' && message.method === SESSION_ENDED.method;
    if (!isEnd) {
      recorder.message(latest.caller, latest, message);
      if (found.some((session) => this.#takes(session, message))) return;
    }
    // Two processes that have had the session in turn would pass it on for ever.
    const formers = hops < MAX_HOPS ? [...sessions.formersOf(latest)] : [];
    const handling = isEnd ? found.map((session) => sessions.leaving.end(session)) : [];
    await Promise.all([...handling, ...formers.map((former) => former.handleMessage(latest, message, hops + 1))]);
  }

  endSession(session: ClientSession): Promise<void> {
    return this.#parts.sessions.end(Session.from(session));
  }
}

import type { Logger } from 'pino';
import { capabilitiesAt } from '../catalog/merge.ts';
import type { View } from '../catalog/view.ts';
import { GatewayError } from '../errors.ts';
import type { Principal } from '../policy/principal.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import { type Answer, EMPTY_RESULT, type Notification, type Request, type Response } from '../protocol/jsonrpc.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import { detach } from '../json/kept-text.ts';
import { featuresOf, negotiate } from '../protocol/revisions.ts';
import { TASK_METHODS } from '../protocol/tasks.ts';
import { UPSTREAM_DIALECTS } from './dialects/upstream-dialect.ts';
import { capabilityKeyOf, forwardableCapabilities } from './exchange/client-capabilities.ts';
import type { CallOutcome } from './calls/call-outcome.ts';
import type { Calls } from './calls/calls.ts';
import type { ClientTasks } from './questions/client-tasks.ts';
import type { ClientSession, Front, ModernCall, ModernCaller, ModernSink, MessageSink, Ownership } from './front.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import { LISTS, type ListAnswers } from './forward/list-answers.ts';
import { isSeverity } from '../protocol/severity.ts';
import type { ModernRequests } from './modern/modern-requests.ts';
import { OpenExchange } from './exchange/open-exchange.ts';
import type { Upstreams } from './exchange/connection-holder.ts';
import type { RequestRecorder } from './exchange/request-recorder.ts';
import { resolveUri } from './exchange/route.ts';
import { noToolsNote, resolve } from './calls/resolve.ts';
import type { Lifecycle } from '../upstream/lifecycle.ts';
import type { ListRefresher } from './lists/list-refresher.ts';
import type { Session } from './clients/session.ts';
import type { SeenClients } from './clients/seen-clients.ts';
import type { Sessions } from './clients/sessions.ts';
import type { Tasks } from './tasks/tasks.ts';

export interface GatewayParts {
  readonly views: ReadonlyMap<string, View>;
  readonly upstreams: Upstreams;
  readonly sessions: Sessions;
  readonly seenClients: SeenClients;
  readonly listRefresher: ListRefresher;
  readonly links: HolderLinks;
  readonly lists: ListAnswers;
  readonly calls: Calls;
  readonly tasks: Tasks;
  readonly clientTasks: ClientTasks;
  readonly modernRequests: ModernRequests;
  readonly recorder: RequestRecorder;
  readonly log: Logger;
  readonly serverInfo: RawObject;
  readonly inFlightPerSession: number;
}

/**
 * The core of the gateway. Answers requests that need no upstream, and sends every other one to exactly one upstream.
 */
export class Gateway implements Front {
  readonly #parts: GatewayParts;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
  }

  readonly #lifecycleOf = (upstream: string): Lifecycle | undefined => this.#parts.upstreams.get(upstream)?.lifecycle;

  hasView(view: string): boolean {
    return this.#parts.views.has(view);
  }

  async initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }> {
    const startedMs = performance.now();
    const opened = await this.#open(request, principal, view);
    const { session, answer } = opened;
    this.#parts.recorder.logInitialize({ principal, view }, session, request, answer, performance.now() - startedMs);
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
      const capabilities = RawObject.parse(detach(params.object('capabilities')?.toString() ?? '{}'));
      const clientCapabilities = forwardableCapabilities(capabilities, featuresOf(revision));
      const capabilityKey = capabilityKeyOf(clientCapabilities);
      const client = { era: 'legacy', principal: principal.key, clientCapabilities, capabilityKey } as const;
      await this.#parts.listRefresher.beginFirstLists(view, client);
      const session = await this.#parts.sessions.open({ principal, view, revision, capabilities });
      this.#parts.seenClients.record(session.caller, params.object('clientInfo'), Date.now());
      const { capabilities: serverCapabilities, tools, view: catalogView } = session.catalog;
      const note = tools.size === 0 ? noToolsNote(catalogView, this.#lifecycleOf, performance.now()) : undefined;
      const instructions = note ?? session.catalog.instructions;
      const result = RawObject.EMPTY.with('protocolVersion', JSON.stringify(revision))
        .with('capabilities', capabilitiesAt(revision, serverCapabilities).toString())
        .with('serverInfo', this.#parts.serverInfo.toString())
        .with('instructions', instructions === undefined ? undefined : JSON.stringify(instructions));
      return { session, answer: { kind: 'result', result: result.toString() } };
    } catch (thrown) {
      return { session: undefined, answer: this.#parts.recorder.fail(thrown, 'initialize') };
    }
  }

  hasSession(id: string): boolean {
    return this.#parts.sessions.has(id);
  }

  ownerOfSession(id: string): Ownership | Promise<Ownership> {
    return this.#parts.sessions.ownerOf(id);
  }

  findSession(
    id: string,
    principal: Principal,
    view: string,
  ): ClientSession | undefined | Promise<ClientSession | undefined> {
    return this.#parts.sessions.find(id, principal, view);
  }

  async handleRequest(
    session: Session,
    request: Request,
    sink: MessageSink,
    headers?: HeaderLookup,
  ): Promise<Answer | undefined> {
    const startedMs = performance.now();
    const span = this.#parts.recorder.begin(request, headers);
    let exchange: OpenExchange | undefined;
    let answer: Answer;
    try {
      exchange = this.#begin(session, request, sink);
      exchange.span = span;
      const to = UPSTREAM_METHODS.has(request.method)
        ? await resolve(this.#parts.listRefresher, this.#lifecycleOf, session, request)
        : undefined;
      if (to?.kind === 'upstream') exchange.setTool(to);
      if (to === undefined) answer = await this.#answer(session, exchange);
      else answer = sessionAnswer(await this.#parts.calls.send(exchange, to));
    } catch (thrown) {
      answer = this.#parts.recorder.fail(thrown, request.method, span);
    }
    if (exchange !== undefined) session.removeExchange(exchange);
    session.usedMs = performance.now();
    this.#parts.recorder.end(session.caller, session, request, exchange, answer, session.usedMs - startedMs, span);
    return exchange?.isCancelledByClient === true ? undefined : answer;
  }

  handleModernRequest(
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    lookup: HeaderLookup | undefined,
  ): ModernCall {
    this.#parts.seenClients.record(caller, caller.clientInfo, Date.now());
    return this.#parts.modernRequests.request(request, caller, sink, lookup);
  }

  #begin(session: Session, request: Request, sink: MessageSink): OpenExchange {
    const { id } = request;
    if (session.inFlight.has(id)) {
      throw new GatewayError('invalid-request', { message: `a request with id ${id} is already in flight` });
    }
    if (session.inFlight.size >= this.#parts.inFlightPerSession) {
      throw new GatewayError('overloaded', { message: `this session has ${session.inFlight.size} requests in flight` });
    }
    const exchange = new OpenExchange(session, session, request, sink);
    session.addExchange(exchange);
    return exchange;
  }

  #answer(session: Session, exchange: OpenExchange): Answer | Promise<Answer> {
    const { request } = exchange;
    if (TASK_METHODS.has(request.method)) return this.#runTask(exchange);
    const list = LISTS.get(request.method);
    if (list !== undefined) return this.#parts.lists.answer(session, list, request);
    switch (request.method) {
      case 'ping':
        return EMPTY_RESULT;
      case 'logging/setLevel':
        return this.#setLevel(session, request);
      case 'resources/subscribe':
      case 'resources/unsubscribe':
        return this.#setSubscription(session, request);
      case 'initialize':
        throw new GatewayError('invalid-request', { message: 'this session is initialized already' });
      default:
        throw new GatewayError('method-not-found', { message: request.method });
    }
  }

  async #runTask(exchange: OpenExchange): Promise<Answer> {
    const outcome = await this.#parts.tasks.request(exchange);
    // A session is in one process with its connections, so the task belongs to another session.
    if (outcome.kind === 'elsewhere') throw new GatewayError('unknown-task');
    return outcome;
  }

  async #setLevel(session: Session, { params }: Request): Promise<Answer> {
    const level = params?.string('level');
    if (!isSeverity(level))
      throw new GatewayError('invalid-params', { message: `no such log level: ${level ?? '(none)'}` });
    await this.#parts.sessions.save(session, { kind: 'level', level });
    session.logLevel = level;
    await this.#parts.links.applyLogLevel(session);
    return EMPTY_RESULT;
  }

  async #setSubscription(session: Session, { method, params }: Request): Promise<Answer> {
    const uri = params?.string('uri');
    if (uri === undefined) throw new GatewayError('invalid-params', { message: '"uri" must be a string' });
    const resource = session.subscriptions.get(uri) ?? resolveUri(session.catalog, uri);
    if (resource instanceof GatewayError) throw resource;
    const to = { upstream: resource.upstream, uri: detach(resource.uri) };
    const { links, sessions } = this.#parts;
    const isSubscribe = method === 'resources/subscribe';
    // Saved first, so that a subscription that cannot be stored is not sent to the upstream.
    if (isSubscribe) await sessions.save(session, { kind: 'subscribe', uri });
    try {
      return await (isSubscribe ? links.subscribe(session, uri, to) : links.unsubscribe(session, uri, to));
    } finally {
      if (!session.subscriptions.has(uri)) await sessions.save(session, { kind: 'unsubscribe', uri });
    }
  }

  handleNotification(session: Session, notification: Notification): void {
    this.#parts.recorder.logMessage(session, notification);
    try {
      this.#onNotification(session, notification);
    } catch (thrown) {
      if (!(thrown instanceof JsonTextError)) throw thrown;
      this.#parts.log.debug({ method: notification.method }, 'malformed notification ignored');
    }
  }

  #onNotification(session: Session, { method, params }: Notification): void {
    switch (method) {
      case 'notifications/initialized':
        session.isInitialized = true;
        return;
      case 'notifications/cancelled':
        session.inFlight.get(params?.raw('requestId') ?? '')?.cancelByClient(params?.string('reason'));
        return;
      case 'notifications/progress':
        if (params !== undefined) session.onProgress(params);
        return;
      case 'notifications/roots/list_changed':
        this.#notifyRootsChanged(session);
        return;
      case 'notifications/tasks/status':
        if (params !== undefined) this.#parts.clientTasks.onStatus(session, params);
        return;
      default:
        this.#parts.log.debug({ method }, 'notification ignored');
    }
  }

  #notifyRootsChanged(session: Session): void {
    if (session.clientCapabilities.object('roots')?.raw('listChanged') !== 'true') return;
    for (const opening of session.linkPromises.values()) {
      opening.then(
        (link) => {
          const knowsRoots =
            UPSTREAM_DIALECTS[link.era].keepsClientState && link.clientCapabilities.raw('roots') !== undefined;
          if (!link.shared && knowsRoots) link.connection.notify('notifications/roots/list_changed');
        },
        () => undefined,
      );
    }
  }

  handleResponse(session: Session, response: Response): void {
    this.#parts.recorder.logMessage(session, response);
    session.onResponse(response.id, response);
  }

  endSession(session: Session): Promise<void> {
    return this.#parts.sessions.end(session);
  }
}

/** Returns the answer. A client with a session is asked while its call goes on, so that nothing else is left at the end. */
function sessionAnswer(outcome: CallOutcome): Answer {
  if (outcome.kind === 'answer') return outcome.answer;
  throw new GatewayError('internal-error', { message: `a call of a session ended with ${outcome.kind}` });
}

/** Methods that exactly one upstream answers. */
const UPSTREAM_METHODS = new Set(['tools/call', 'prompts/get', 'resources/read', 'completion/complete']);

import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { endpointPath } from '../endpoint-path.ts';
import { failureOfRetry, GatewayError, toAnswer } from '../errors.ts';
import type { ClientHttp, ClientResponse } from '../gateway/front/client-http.ts';
import type { ClientSession, Front, ModernCaller } from '../gateway/front/front.ts';
import type { Settings } from '../config/values/config.ts';
import type { Principal } from '../policy/principal.ts';
import { detach } from '../json/kept-text.ts';
import { isRetry } from '../protocol/input-required.ts';
import { jsonEventText } from '../protocol/framing/event-stream.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import {
  type Answer,
  type Id,
  invalidAnswer,
  type Message,
  MessageError,
  type Request,
  responseText,
} from '../protocol/jsonrpc.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { getForm, postForm, type AnswerForm } from './admission/accept.ts';
import type { Admitted } from './admission/admission.ts';
import { refusalOfForwarded, refusalOfPost, refuseForLoad } from './new-work.ts';
import type { Load } from '../load/load.ts';
import { classify, type ClientInput, idOf, inputOf, refuseBatch, refusedId, sessionOf, toRefusal } from './classify.ts';
import { DisconnectWatcher } from './streams/disconnect-watcher.ts';
import { ForwardedWork } from './forwarded-work.ts';
import { callerOf, headerLookup, SESSIONLESS } from './modern-envelope.ts';
import { LISTEN, ModernReply, type ModernReplyParts } from './modern-reply.ts';
import { ProcessForwarder } from './process-forwarder.ts';
import { browserHint } from './admission/browser-hint.ts';
import { postedText } from './admission/posted-text.ts';
import type { EdgeMemory } from './memory/edge-memory.ts';
import type { RunningBody } from './memory/running-bodies.ts';
import type { EdgeTimers } from './streams/edge-timers.ts';
import type { RefusalAudit } from './admission/refusal-audit.ts';
import { refuse, refuseOver, refuseUnknownEndpoint, writeAccepted, writeResponse } from './admission/refusal.ts';
import { Reply, type ReplyParts, writeAnswer } from './reply.ts';
import { OpenStreams } from './streams/open-streams.ts';
import type { StreamsParts } from './streams/session-streams.ts';
import { holdUnsent } from './streams/unsent-answer.ts';
import { EVENT_STREAM_HEADERS } from './streams/event-stream.ts';
import { expected } from '../thrown.ts';

export interface McpParts extends StreamsParts {
  readonly front: Front;
  /** The limits bound bodies, and the `subscriptions/listen` streams of each principal. */
  readonly settings: Settings<'limits' | 'sessions' | 'jsonAnswers'>;
  /** Undefined if there is no audit log. */
  readonly refusals?: RefusalAudit | undefined;
  /** Refuses new work under overload. */
  readonly load: Load;
  /**
   * Returns the value of `WWW-Authenticate` if the credentials of an authenticated principal are not accepted any more, else undefined.
   *
   * @param path of the requested endpoint.
   */
  challengeIfOver(principal: Principal, path: string): string | undefined;
  /** Returns the value of `WWW-Authenticate` of a request at this view that a token with these scopes may make. */
  scopeChallenge(scopes: readonly string[], view: string): string;
  /** Returns the principal with the rights that its credentials have now; the same object if they have not changed. */
  currentOf(principal: Principal): Principal;
  /** Returns the response to a request whose handling threw. */
  onFailure(thrown: unknown, outgoing: ClientResponse): Response;
}

/** The principal of a request, and the view that it is for. */
type Sender = Pick<ModernCaller, 'view' | 'principal'>;

/** A POST that is being answered. */
interface Posting extends Sender {
  readonly outgoing: ClientResponse;
  readonly form: AnswerForm;
  readonly lookup: HeaderLookup;
  /** True for a subscription. */
  readonly isListen: boolean;
  /** The body. */
  readonly text: string;
}

const VERBS = 'GET, POST, DELETE';

/**
 * Serves Streamable HTTP for all revisions at one path.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
 */
export class McpEndpoint implements ReplyParts, ModernReplyParts {
  undecided = 0;
  readonly timers: EdgeTimers;
  readonly memory: EdgeMemory;
  readonly metrics: Metrics;
  readonly #parts: McpParts;
  readonly streams: OpenStreams;
  readonly forwarded = new ForwardedWork();
  readonly disconnects = new DisconnectWatcher();
  readonly #forwarder: ProcessForwarder;
  #isDraining = false;

  constructor(parts: McpParts) {
    this.#parts = parts;
    this.timers = parts.timers;
    this.memory = parts.memory;
    this.metrics = parts.metrics;
    this.#forwarder = new ProcessForwarder(parts.front);
    this.streams = new OpenStreams(parts, () => parts.settings().limits.streamsPerPrincipal);
  }

  /**
   * Handles a request to an endpoint, or passes it on to the process that has its session.
   *
   * @param endpoint external URI, for the hint that browsers get.
   */
  async answer(env: ClientHttp, view: string, admitted: Admitted, endpoint: string): Promise<Response> {
    const { front } = this.#parts;
    if (!front.hasView(view, admitted.principal)) return this.refuseEndpoint(view, admitted.principal);
    const { sessionId } = admitted.headers;
    if (sessionId !== undefined && !front.hasSession(sessionId)) {
      const passedOn = await this.#forwarder.forwardToOwner(env.outgoing, view, admitted, sessionId);
      if (passedOn !== undefined) {
        holdUnsent(env.outgoing, this.memory.unsent, admitted.principal.key);
        return passedOn;
      }
    }
    return await this.answerHere(env, view, admitted, endpoint);
  }

  /** The number of open `subscriptions/listen` streams, whose requests are not answered. */
  get listenCount(): number {
    return this.streams.listenCount + this.forwarded.listens.size;
  }

  /** Counts the body of a request that another process has passed on, or returns its refusal because of the load of this one. */
  beginForwarded(request: Request, caller: ModernCaller, text: string): RunningBody | GatewayError | undefined {
    const error = refusalOfForwarded(this.#parts.load, request)?.error;
    if (error === undefined) return this.#hold(request, caller, text);
    this.#record(error, caller);
    return error;
  }

  /** Counts the body of a modern request until it is released. Returns undefined if that is not needed, or the refusal. */
  #hold(request: Request, caller: ModernCaller, text: string): RunningBody | GatewayError | undefined {
    const body = this.memory.running.hold(caller.principal.key, text, request);
    if (body instanceof GatewayError) this.#record(body, caller);
    return body;
  }

  /** Refuses a request to an endpoint that does not exist, or that the access policy hides from its principal. */
  refuseEndpoint(view: string, principal: Principal): Response {
    if (this.#parts.front.reportHiddenView(view, principal)) {
      this.#parts.refusals?.record({ error: new GatewayError('not-found'), isDenied: true, view, principal });
    }
    return refuseUnknownEndpoint();
  }

  async answerHere(env: ClientHttp, view: string, admitted: Admitted, endpoint: string): Promise<Response> {
    const { method = '' } = env.incoming;
    switch (method) {
      case 'POST':
        return await this.#post(env, view, admitted);
      case 'GET':
        return await this.#get(env, view, admitted, endpoint);
      case 'DELETE':
        return await this.#delete(env, view, admitted);
      default:
        return refuse(new GatewayError('method-not-allowed', { message: `use ${VERBS}` }), undefined, { allow: VERBS });
    }
  }

  /** Refuses new requests, and ends streams that are answers of their own. Those of sessions go on. */
  refuseNew(): void {
    this.#isDraining = true;
    this.streams.endListens(() => true);
    for (const listen of this.forwarded.listens) listen.close();
  }

  /** Ends the streams on which no answer is due, and refuses new requests. */
  drain(isForRestart = false): void {
    this.refuseNew();
    // If all processes end, so does the one with the stream, and it alone can name a delay without splitting an event.
    if (!isForRestart) this.endPassedOnStreams();
    this.streams.drain(isForRestart);
  }

  /** Ends the event streams of clients that come from other processes. The clients open them again. */
  endPassedOnStreams(): void {
    this.#forwarder.endStreams();
  }

  async #post(env: ClientHttp, view: string, admitted: Admitted): Promise<Response> {
    const form = postForm(admitted.headers.accept);
    if (form === undefined) {
      return refuse(
        new GatewayError('not-acceptable', { message: 'send Accept: application/json, text/event-stream' }),
      );
    }
    const { bodyBytes } = this.#parts.settings().limits;
    const limits = { limitBytes: bodyBytes, budget: this.memory.bodies, principal: admitted.principal.key };
    const text = await postedText(env, admitted.headers, limits);
    if (typeof text !== 'string') return text;
    return await this.post(env.outgoing, view, admitted, form, text);
  }

  /** Answers a POST whose body was read. */
  async post(
    outgoing: ClientResponse,
    view: string,
    admitted: Admitted,
    form: AnswerForm,
    text: string,
  ): Promise<Response> {
    const { headers } = admitted;
    const lookup = headerLookup(outgoing.req.headers);
    // The credentials may have been revoked, or got other rights, while the body was received.
    const challenge = this.#parts.challengeIfOver(admitted.principal, endpointPath(view));
    if (challenge !== undefined) return refuseOver(challenge);
    const principal = this.#parts.currentOf(admitted.principal);
    const { sessions, jsonAnswers } = this.#parts.settings();
    const posted = classify(text, headers, lookup, sessions.required);
    // A subscription is a stream by its nature.
    const isListen = posted.kind === 'modern' && posted.request.method === LISTEN;
    const isJson = form === 'any' && jsonAnswers.includes(view) && !isListen;
    const posting: Posting = { outgoing, view, principal, form: isJson ? 'json' : form, lookup, isListen, text };
    if (this.#isDraining) {
      const passedOn = await this.#forwarder.forwardPost(outgoing, view, admitted, posted, text);
      if (passedOn !== undefined) return passedOn;
    }
    const shed = refusalOfPost(this.#parts.load, posted);
    if (shed !== undefined) {
      this.#record(shed.error, posting);
      return refuseForLoad(shed, idOf(inputOf(posted)));
    }
    switch (posted.kind) {
      case 'refused':
        if ('limit' in posted && posted.limit !== undefined) this.metrics.countLimit(posted.limit);
        this.#record(posted.error, posting);
        if (posted.answer !== undefined && headers.sessionId !== undefined) {
          const session = await this.#find(headers.sessionId, principal, view);
          if (!(session instanceof GatewayError)) this.#parts.front.handleResponse(session, posted.answer);
        }
        return refuse(posted.error, posted.id);
      case 'modern': {
        const { request, envelope } = posted;
        if (this.#isDraining) {
          const draining = new GatewayError('draining');
          return refuse(isRetry(request.params) ? failureOfRetry(draining) : draining, request.id);
        }
        return this.#answerModern(posting, request, callerOf(envelope, principal, view));
      }
      case 'sessionless':
        if (this.#isDraining) return refuse(new GatewayError('draining'), posted.request.id);
        return this.#answerModern(posting, posted.request, callerOf(SESSIONLESS[posted.revision], principal, view));
      case 'ignored':
        if (posted.message.kind === 'notification')
          this.#parts.front.noteNotification({ principal, view }, posted.message);
        return writeAccepted(outgoing);
      case 'initialize':
        return this.#initialize(posting, posted.request, headers.sessionId);
      case 'session': {
        const found = this.#find(posted.sessionId, principal, view);
        const session = found instanceof Promise ? await found : found;
        if (session instanceof GatewayError) return this.#refuse(session, posting, idOf(posted.input));
        return await this.#inSession(posting, session, posted.input);
      }
    }
  }

  #inSession(posting: Posting, session: ClientSession, input: ClientInput): Response | Promise<Response> {
    if (!('kind' in input)) return this.#converseInBatch(posting, session, input);
    if (input.kind !== 'request') {
      this.#onNotification(session, input);
      return writeAccepted(posting.outgoing);
    }
    if (this.#refusesRequests) return refuse(new GatewayError('draining'), input.id);
    const body = this.memory.running.hold(posting.principal.key, posting.text);
    if (body instanceof GatewayError) return this.#refuse(body, posting, input.id);
    void this.#converse(posting, session, input, body);
    return RESPONSE_ALREADY_SENT;
  }

  /** True if requests of sessions that are here are refused: this process ends, and cannot give them away. */
  get #refusesRequests(): boolean {
    return this.#isDraining && this.#parts.front.successor() === undefined;
  }

  /** Answers a request in a session. Never rejects. */
  async #converse(
    { outgoing, form, lookup, principal }: Posting,
    session: ClientSession,
    request: Request,
    body: RunningBody | undefined,
  ): Promise<void> {
    try {
      const reply = new Reply(outgoing, { session, form, request: request.id, expected: 1 }, this);
      const { front } = this.#parts;
      reply.answer(request.id, await front.handleRequest(session, request, reply, lookup, principal));
    } catch (thrown) {
      this.onFailed(thrown, outgoing);
    } finally {
      body?.release();
    }
  }

  #answerModern({ outgoing, form, lookup, isListen, text }: Posting, request: Request, caller: ModernCaller): Response {
    const principal = caller.principal.key;
    const body = this.#hold(request, caller, text);
    if (body instanceof GatewayError) return refuse(body, request.id);
    const tooMany = isListen ? this.streams.listenCounts.add(principal) : undefined;
    if (tooMany !== undefined) {
      body?.release();
      return refuse(tooMany, request.id);
    }
    // A stream stays open for hours, and must not keep the text of its request.
    const replied = isListen ? { ...request, id: detach(request.id), method: LISTEN, params: undefined } : request;
    const reply = new ModernReply(outgoing, replied, caller, form, this, body);
    if (isListen) this.streams.addListen(reply, caller.principal);
    reply.bind(this.#parts.front.handleModernRequest(request, caller, reply, lookup));
    return RESPONSE_ALREADY_SENT;
  }

  challengeOf(answer: Answer | undefined, view: string): string | undefined {
    if (answer?.kind !== 'error' || answer.scopes === undefined) return undefined;
    return this.#parts.scopeChallenge(answer.scopes, view);
  }

  onReplied(reply: ModernReply): void {
    this.streams.removeListen(reply, reply.principal);
  }

  onFailed(thrown: unknown, outgoing: ClientResponse): void {
    writeResponse(outgoing, this.#parts.onFailure(thrown, outgoing));
  }

  async #initialize(posting: Posting, request: Request, sessionId: string | undefined): Promise<Response> {
    const { outgoing, view, principal, form } = posting;
    if (this.#isDraining) return refuse(new GatewayError('draining'), request.id);
    // Clients that name an ended session may open a new one.
    if (sessionId !== undefined && !((await this.#find(sessionId, principal, view)) instanceof GatewayError)) {
      const message = 'this session is initialized already; send initialize without Mcp-Session-Id to open another';
      return this.#refuse(new GatewayError('invalid-request', { message }), posting, request.id);
    }
    const { session, answer } = await this.#parts.front.initialize(request, principal, view);
    const challenge = this.#parts.challengeIfOver(principal, endpointPath(view));
    if (session !== undefined && challenge !== undefined) {
      await this.#parts.front.endSession(session);
      return refuseOver(challenge, request.id);
    }
    if (form === 'events') {
      const id = session === undefined ? {} : { 'mcp-session-id': session.id };
      outgoing.writeHead(200, { ...EVENT_STREAM_HEADERS, ...id });
      outgoing.end(jsonEventText({ data: responseText(request.id, answer) }));
    } else {
      writeAnswer(outgoing, request.id, answer, session?.id);
    }
    return RESPONSE_ALREADY_SENT;
  }

  /** Records a refusal, and returns it as a response. */
  #refuse(error: GatewayError, by: Sender, id?: Id): Response {
    this.#record(error, by);
    return refuse(error, id);
  }

  #record(error: GatewayError, { view, principal }: Sender): void {
    this.#parts.refusals?.record({ error, view, principal });
  }

  async #converseInBatch(
    posting: Posting,
    session: ClientSession,
    items: readonly (Message | MessageError)[],
  ): Promise<Response> {
    const { outgoing, form, lookup, principal, text } = posting;
    const { front } = this.#parts;
    for (const item of items) {
      if (item instanceof MessageError && item.limit !== undefined) this.metrics.countLimit(item.limit);
    }
    const refused = refuseBatch(items, session.caller.revision);
    if (refused !== undefined) return this.#refuse(refused, posting);
    const expected = items.filter((item) => item instanceof MessageError || item.kind === 'request').length;
    if (expected > 0 && this.#refusesRequests) return refuse(new GatewayError('draining'));
    if (expected === 0) {
      for (const item of items) {
        if (!(item instanceof MessageError)) this.#onNotification(session, item);
      }
      return writeAccepted(outgoing);
    }
    const body = this.memory.running.hold(principal.key, text);
    if (body instanceof GatewayError) return this.#refuse(body, posting);
    const reply = new Reply(outgoing, { session, form, request: undefined, expected }, this);
    await Promise.all(
      items.map(async (item) => {
        if (item instanceof MessageError) {
          if (item.isResponse) front.handleResponse(session, invalidAnswer(item));
          const error = toRefusal(item);
          this.#record(error, posting);
          reply.answer(refusedId(item), toAnswer(error));
        } else if (item.kind === 'request')
          reply.answer(item.id, await front.handleRequest(session, item, reply, lookup, principal));
        else this.#onNotification(session, item);
      }),
    ).finally(() => body?.release());
    return RESPONSE_ALREADY_SENT;
  }

  /** Passes a notification or response to the core. */
  #onNotification(session: ClientSession, message: Message): void {
    if (message.kind === 'notification') this.#parts.front.handleNotification(session, message);
    else if (message.kind !== 'request') this.#parts.front.handleResponse(session, message);
  }

  async #get(
    { outgoing }: ClientHttp,
    view: string,
    { headers, principal }: Admitted,
    endpoint: string,
  ): Promise<Response> {
    const wanted = getForm(headers.accept);
    if (wanted === 'hint') return browserHint(endpoint);
    if (wanted !== 'events' || headers.sessionId === undefined) {
      // Not 400: clients treat every status but 200 and 405 as a failure, and retry at once.
      const message = 'a GET opens the event stream of a session: send Mcp-Session-Id and Accept: text/event-stream';
      return refuse(new GatewayError('method-not-allowed', { message }), undefined, { allow: 'POST' });
    }
    const session = await this.#sessionOf(headers, principal, view);
    if (session instanceof GatewayError) return refuse(session);
    const { lastEventId } = headers;
    // A client that resumes a stream to get an answer is served during the drain too.
    if (this.#isDraining && lastEventId === undefined) return refuse(new GatewayError('draining'));
    const streams = this.streams.of(session);
    if (streams === undefined) return refuse(new GatewayError('session-unknown', { message: 'initialize again' }));
    const challenge = this.#parts.challengeIfOver(principal, endpointPath(view));
    if (challenge !== undefined) return refuseOver(challenge);
    if (!streams.mayOpen(performance.now(), lastEventId)) {
      this.metrics.countLimit('streamOpensPerMinute');
      const message = 'this session opened its event stream too often within a minute; keep it open';
      return refuse(new GatewayError('too-many-requests', { message }), undefined, { 'retry-after': '60' });
    }
    const reader = this.#parts.currentOf(principal);
    if (lastEventId === undefined) {
      streams.listen(outgoing, reader);
      return RESPONSE_ALREADY_SENT;
    }
    const resumed = await streams.resume(outgoing, lastEventId, reader).catch(expected(GatewayError));
    if (resumed instanceof GatewayError) return refuse(resumed);
    if (resumed) return RESPONSE_ALREADY_SENT;
    // Clients that see the empty stream end would resume it again and again; 405 ends that.
    const message = 'this stream has ended, and every event of it was sent';
    return refuse(new GatewayError('method-not-allowed', { message }), undefined, { allow: 'POST' });
  }

  async #delete({ outgoing }: ClientHttp, view: string, { headers, principal }: Admitted): Promise<Response> {
    const session = await this.#sessionOf(headers, principal, view);
    if (session instanceof GatewayError) return refuse(session);
    const failure = await this.#parts.front.endSession(session).catch(expected(GatewayError));
    if (failure instanceof GatewayError) return refuse(failure);
    outgoing.writeHead(204);
    outgoing.end();
    return RESPONSE_ALREADY_SENT;
  }

  async #sessionOf(headers: Admitted['headers'], principal: Principal, view: string): Promise<SessionOrRefusal> {
    const id = sessionOf(headers);
    const session = id instanceof GatewayError ? id : await this.#find(id, principal, view);
    if (session instanceof GatewayError) this.#record(session, { view, principal });
    return session;
  }

  #find(id: string, principal: Principal, view: string): SessionOrRefusal | Promise<SessionOrRefusal> {
    const found = this.#parts.front.findSession(id, principal, view);
    return found instanceof Promise ? found.then(orUnknownSession, expected(GatewayError)) : orUnknownSession(found);
  }
}

type SessionOrRefusal = ClientSession | GatewayError;

function orUnknownSession(session: ClientSession | undefined): SessionOrRefusal {
  return session ?? new GatewayError('session-unknown', { message: 'it ended or was never yours; initialize again' });
}

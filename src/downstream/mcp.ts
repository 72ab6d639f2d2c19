import type { ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError, toAnswer } from '../errors.ts';
import type { ClientSession, Front, ModernCaller } from '../gateway/front.ts';
import type { Principal } from '../policy/principal.ts';
import { eventText } from '../protocol/framing/event-stream.ts';
import { oneLine } from '../json/json.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import { type Id, type Message, MessageError, type Request, responseText } from '../protocol/jsonrpc.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { getShape, postShape, type Shape } from './admission/accept.ts';
import type { Admitted } from './admission/admission.ts';
import { classify, refuseBatch, type ClientInput, sessionOf, toRefusal } from './classify.ts';
import { DisconnectWatcher } from './streams/disconnect-watcher.ts';
import { headerLookup, modernCaller } from './modern-envelope.ts';
import { ModernReply, type ModernReplyParts } from './modern-reply.ts';
import { browserHint } from './admission/browser-hint.ts';
import { postedText } from './admission/posted-text.ts';
import type { EdgeMemory } from './memory/edge-memory.ts';
import type { EdgeTimers } from './streams/edge-timers.ts';
import { refuse, refuseUnknownEndpoint, writeResponse } from './admission/refusal.ts';
import { Reply, type ReplyParts, writeAnswer } from './reply.ts';
import { SessionStreams, type StreamsParts } from './streams/session-streams.ts';
import { StreamCounts } from './memory/stream-counts.ts';
import { EVENT_STREAM_HEADERS } from './streams/event-stream.ts';

export interface McpParts extends StreamsParts {
  readonly front: Front;
  readonly bodyBytes: number;
  /** Bounds `subscriptions/listen` streams. */
  readonly streamsPerPrincipal: number;
  /** Returns the response to a request whose handling threw. */
  onFailure(thrown: unknown, outgoing: ServerResponse): Response;
}

const VERBS = 'GET, POST, DELETE';
/** The request without an end of its own: the client or the gateway ends it. */
const LISTEN = 'subscriptions/listen';

/** Returns the request id for the refusal of this input. */
function idOf(input: ClientInput): Id {
  return 'kind' in input && input.kind === 'request' ? input.id : 'null';
}

/**
 * Serves Streamable HTTP for all revisions at one path.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
 */
export class McpEndpoint implements ReplyParts, ModernReplyParts {
  readonly #parts: McpParts;
  /** Streams of sessions that have opened one. */
  readonly #streams = new Map<ClientSession, SessionStreams>();
  readonly #listens = new Set<ModernReply>();
  readonly #listenCounts: StreamCounts;
  #bodyBytes: number;
  readonly disconnects = new DisconnectWatcher();
  #isDraining = false;

  constructor(parts: McpParts) {
    this.#parts = parts;
    this.#listenCounts = new StreamCounts(parts.streamsPerPrincipal);
    this.#bodyBytes = parts.bodyBytes;
  }

  /** Applies limits to later requests and streams. */
  setLimits(bodyBytes: number, streamsPerPrincipal: number): void {
    this.#bodyBytes = bodyBytes;
    this.#listenCounts.perPrincipal = streamsPerPrincipal;
  }

  get timers(): EdgeTimers {
    return this.#parts.timers;
  }

  get memory(): EdgeMemory {
    return this.#parts.memory;
  }

  get metrics(): Metrics | undefined {
    return this.#parts.metrics;
  }

  /**
   * Handles a request to an endpoint, or passes it on to the process that has its session.
   *
   * @param endpoint external URI, for the hint that browsers get.
   */
  async answer(env: HttpBindings, view: string, admitted: Admitted, endpoint: string): Promise<Response> {
    const { front } = this.#parts;
    if (!front.hasView(view)) return refuseUnknownEndpoint();
    const { sessionId } = admitted.headers;
    if (sessionId !== undefined && !front.hasSession(sessionId)) {
      const ownership = await front.ownerOfSession(sessionId);
      if (ownership.kind === 'elsewhere') {
        await ownership.owner.forward(env.incoming, env.outgoing);
        return RESPONSE_ALREADY_SENT;
      }
    }
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

  /** Ends the streams of these principals on which no answer is due. A client may open another, with valid credentials. */
  endStreams(isConcerned: (principal: string) => boolean): void {
    for (const [session, streams] of this.#streams) {
      if (isConcerned(session.caller.principal.key)) streams.drain();
    }
    for (const reply of this.#listens) if (isConcerned(reply.principal)) reply.close();
  }

  /** Ends the streams on which no answer is due, and refuses new requests. */
  drain(): void {
    this.#isDraining = true;
    for (const streams of this.#streams.values()) streams.drain();
    for (const reply of this.#listens) reply.close();
  }

  async #post(env: HttpBindings, view: string, admitted: Admitted): Promise<Response> {
    const shape = postShape(admitted.headers.accept);
    if (shape === undefined) {
      return refuse(
        new GatewayError('not-acceptable', { message: 'send Accept: application/json, text/event-stream' }),
      );
    }
    const { memory } = this.#parts;
    const limits = { limitBytes: this.#bodyBytes, budget: memory.bodies, principal: admitted.principal.key };
    const text = await postedText(env, admitted.headers, limits);
    if (typeof text !== 'string') return text;
    const lookup = headerLookup(env.incoming.headers);
    return await this.post(env.outgoing, view, admitted, shape, lookup, text);
  }

  /** Answers the text of a POST. */
  async post(
    outgoing: ServerResponse,
    view: string,
    { headers, principal }: Admitted,
    shape: Shape,
    lookup: HeaderLookup,
    text: string,
  ): Promise<Response> {
    const posted = classify(text, headers, lookup);
    switch (posted.kind) {
      case 'refused':
        if ('limit' in posted && posted.limit !== undefined) this.#parts.metrics?.limitReached(posted.limit);
        return refuse(posted.error, posted.id);
      case 'modern': {
        const { request, envelope } = posted;
        if (this.#isDraining) return refuse(new GatewayError('draining'), request.id);
        return this.#answerModern(outgoing, request, modernCaller(envelope, principal, view), shape, lookup);
      }
      case 'modern-notification':
        return writeAccepted(outgoing);
      case 'initialize':
        return this.#initialize(outgoing, posted.request, principal, view, shape, headers.sessionId);
      case 'session': {
        const found = this.#find(posted.sessionId, principal, view);
        const session = found instanceof Promise ? await found : found;
        return await this.#inSession(outgoing, session, posted.input, shape, lookup);
      }
    }
  }

  #inSession(
    outgoing: ServerResponse,
    session: SessionOrRefusal,
    input: ClientInput,
    shape: Shape,
    lookup: HeaderLookup,
  ): Response | Promise<Response> {
    if (session instanceof GatewayError) return refuse(session, idOf(input));
    if (!('kind' in input)) return this.#converseInBatch(outgoing, session, input, shape, lookup);
    if (input.kind !== 'request') {
      this.#onNotification(session, input);
      return writeAccepted(outgoing);
    }
    if (this.#isDraining) return refuse(new GatewayError('draining'), input.id);
    void this.#converse(outgoing, session, input, shape, lookup);
    return RESPONSE_ALREADY_SENT;
  }

  /** Answers a request in a session. Never rejects. */
  async #converse(
    outgoing: ServerResponse,
    session: ClientSession,
    request: Request,
    shape: Shape,
    lookup: HeaderLookup,
  ): Promise<void> {
    try {
      const reply = new Reply(outgoing, { session, shape, request: request.id, expected: 1 }, this);
      reply.answer(request.id, await this.#parts.front.handleRequest(session, request, reply, lookup));
    } catch (thrown) {
      this.onFailed(thrown, outgoing);
    }
  }

  #answerModern(
    outgoing: ServerResponse,
    request: Request,
    caller: ModernCaller,
    shape: Shape,
    lookup: HeaderLookup,
  ): Response {
    const principal = caller.principal.key;
    const isListen = request.method === LISTEN;
    if (isListen && !this.#listenCounts.add(principal)) {
      this.#parts.metrics?.shed('streams');
      const message = `you have ${this.#listenCounts.perPrincipal} ${LISTEN} streams open; close one first`;
      return refuse(new GatewayError('overloaded', { message }), request.id);
    }
    const reply = new ModernReply(outgoing, request, principal, shape, this);
    if (isListen) this.#listens.add(reply);
    reply.bind(this.#parts.front.handleModernRequest(request, caller, reply, lookup));
    return RESPONSE_ALREADY_SENT;
  }

  onReplied(reply: ModernReply): void {
    if (this.#listens.delete(reply)) this.#listenCounts.remove(reply.principal);
  }

  onFailed(thrown: unknown, outgoing: ServerResponse): void {
    writeResponse(outgoing, this.#parts.onFailure(thrown, outgoing));
  }

  async #initialize(
    outgoing: ServerResponse,
    request: Request,
    principal: Principal,
    view: string,
    shape: Shape,
    sessionId: string | undefined,
  ): Promise<Response> {
    if (this.#isDraining) return refuse(new GatewayError('draining'), request.id);
    // Clients that name an ended session may open a new one.
    if (sessionId !== undefined && !((await this.#find(sessionId, principal, view)) instanceof GatewayError)) {
      const message = 'this session is initialized already; send initialize without Mcp-Session-Id to open another';
      return refuse(new GatewayError('invalid-request', { message }), request.id);
    }
    const { session, answer } = await this.#parts.front.initialize(request, principal, view);
    if (shape === 'events') {
      const id = session === undefined ? {} : { 'mcp-session-id': session.id };
      outgoing.writeHead(200, { ...EVENT_STREAM_HEADERS, ...id });
      outgoing.end(eventText({ data: oneLine(responseText(request.id, answer)) }));
    } else {
      writeAnswer(outgoing, request.id, answer, session?.id);
    }
    return RESPONSE_ALREADY_SENT;
  }

  async #converseInBatch(
    outgoing: ServerResponse,
    session: ClientSession,
    items: readonly (Message | MessageError)[],
    shape: Shape,
    lookup: HeaderLookup,
  ): Promise<Response> {
    const { front, metrics } = this.#parts;
    for (const item of items) {
      if (item instanceof MessageError && item.limit !== undefined) metrics?.limitReached(item.limit);
    }
    const refused = refuseBatch(items, session.caller.revision);
    if (refused !== undefined) return refuse(refused);
    const expected = items.filter((item) => item instanceof MessageError || item.kind === 'request').length;
    if (expected > 0 && this.#isDraining) return refuse(new GatewayError('draining'));
    if (expected === 0) {
      for (const item of items) {
        if (!(item instanceof MessageError)) this.#onNotification(session, item);
      }
      return writeAccepted(outgoing);
    }
    const reply = new Reply(outgoing, { session, shape, request: undefined, expected }, this);
    await Promise.all(
      items.map(async (item) => {
        if (item instanceof MessageError) reply.answer(item.id, toAnswer(toRefusal(item)));
        else if (item.kind === 'request')
          reply.answer(item.id, await front.handleRequest(session, item, reply, lookup));
        else this.#onNotification(session, item);
      }),
    );
    return RESPONSE_ALREADY_SENT;
  }

  /** Passes a notification or response to the core. */
  #onNotification(session: ClientSession, message: Message): void {
    if (message.kind === 'notification') this.#parts.front.handleNotification(session, message);
    else if (message.kind !== 'request') this.#parts.front.handleResponse(session, message);
  }

  async #get(
    { outgoing }: HttpBindings,
    view: string,
    { headers, principal }: Admitted,
    endpoint: string,
  ): Promise<Response> {
    const wanted = getShape(headers.accept);
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
    const streams = this.streamsOf(session);
    if (streams === undefined) return refuse(new GatewayError('session-unknown', { message: 'initialize again' }));
    if (!streams.mayOpen(performance.now(), lastEventId)) {
      this.#parts.metrics?.limitReached('streamOpensPerMinute');
      const message = 'this session opened its event stream too often within a minute; keep it open';
      return refuse(new GatewayError('too-many-requests', { message }), undefined, { 'retry-after': '60' });
    }
    if (lastEventId === undefined) streams.listen(outgoing);
    else if (!(await streams.resume(outgoing, lastEventId))) {
      // Clients that see the empty stream end would resume it again and again; 405 ends that.
      const message = 'this stream has ended, and every event of it was sent';
      return refuse(new GatewayError('method-not-allowed', { message }), undefined, { allow: 'POST' });
    }
    return RESPONSE_ALREADY_SENT;
  }

  async #delete({ outgoing }: HttpBindings, view: string, { headers, principal }: Admitted): Promise<Response> {
    const session = await this.#sessionOf(headers, principal, view);
    if (session instanceof GatewayError) return refuse(session);
    try {
      await this.#parts.front.endSession(session);
    } catch (thrown) {
      if (thrown instanceof GatewayError) return refuse(thrown);
      throw thrown;
    }
    outgoing.writeHead(204);
    outgoing.end();
    return RESPONSE_ALREADY_SENT;
  }

  async #sessionOf(
    headers: Admitted['headers'],
    principal: Principal,
    view: string,
  ): Promise<ClientSession | GatewayError> {
    const id = sessionOf(headers);
    return id instanceof GatewayError ? id : await this.#find(id, principal, view);
  }

  #find(id: string, principal: Principal, view: string): SessionOrRefusal | Promise<SessionOrRefusal> {
    const found = this.#parts.front.findSession(id, principal, view);
    return found instanceof Promise ? found.then(orUnknownSession, orRethrow) : orUnknownSession(found);
  }

  streamsOf(session: ClientSession): SessionStreams | undefined {
    if (session.closed.aborted) return undefined;
    let streams = this.#streams.get(session);
    if (streams === undefined) {
      streams = new SessionStreams(session, this.#parts);
      this.#streams.set(session, streams);
      session.closed.addEventListener('abort', () => this.#streams.delete(session), { once: true });
    }
    return streams;
  }
}

type SessionOrRefusal = ClientSession | GatewayError;

function orUnknownSession(session: ClientSession | undefined): SessionOrRefusal {
  return session ?? new GatewayError('session-unknown', { message: 'it ended or was never yours; initialize again' });
}

/** Returns an expected error as a refusal, and rethrows any other. */
function orRethrow(thrown: unknown): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  throw thrown;
}

function writeAccepted(outgoing: ServerResponse): Response {
  outgoing.writeHead(202, { 'content-length': 0 });
  outgoing.end();
  return RESPONSE_ALREADY_SENT;
}

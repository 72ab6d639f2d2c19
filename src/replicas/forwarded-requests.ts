import { isUtf8 } from 'node:buffer';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Logger } from 'pino';
import { postForm } from '../downstream/admission/accept.ts';
import { readHeaders } from '../downstream/admission/headers.ts';
import { postedText, refuseMedia } from '../downstream/admission/posted-text.ts';
import { refuse, writeResponse } from '../downstream/admission/refusal.ts';
import type { Endpoints } from '../downstream/http/app.ts';
import { LISTEN } from '../downstream/modern-reply.ts';
import { GatewayError, toAnswer, toGatewayError } from '../errors.ts';
import { MAX_HOPS } from '../gateway/exchange/owners.ts';
import type { Front, ModernCall, ModernSink } from '../gateway/front/front.ts';
import type { Callers } from '../policy/callers.ts';
import { type Answer, MessageError, parseMessage } from '../protocol/jsonrpc.ts';
import type { ForwardedHead } from './forwarded-head.ts';
import type { ServedExchange } from './incoming-channel.ts';
import { type ForwardedHandler, MISDIRECTED, UNREADABLE } from './internal-server.ts';
import { answerLine, messageLine, parseRequestBody } from './modern-exchange.ts';
import { resultOrError } from '../thrown.ts';

/** Bytes of messages that wait for a slow replica. Messages beyond it are dropped. */
const UNSENT_BYTES = 1_048_576;
/** A request of a client is at most this much longer between two replicas. */
const BODY_FACTOR = 2;
const BODY_EXTRA_BYTES = 1_048_576;

export interface ForwardedRequestsParts {
  readonly front: Front;
  readonly endpoints: Endpoints;
  readonly log: Logger;
  /** Remembers the principals of requests, for credentials of upstreams. */
  readonly callers?: Callers | undefined;
  /** The greatest body of a request of a client. */
  readonly bodyBytes: () => number;
}

/** Returns the function that answers the requests that other replicas pass on. Their principals are authenticated. */
export function forwardedRequests(parts: ForwardedRequestsParts): ForwardedHandler {
  const { log, callers, endpoints } = parts;
  const { forwarded } = endpoints.mcp;
  return (exchange, head) => {
    // A GET stream has no end of its own, and a drain ends it.
    if (head.method === 'POST') {
      forwarded.begin();
      exchange.onEnd = forwarded.end;
    }
    const { outgoing } = exchange;
    callers?.remember(head.principal, head.token);
    answer(parts, exchange, head).then(
      (response) => writeResponse(outgoing, response),
      (thrown: unknown) => {
        if (!(thrown instanceof GatewayError)) log.error({ err: thrown }, 'request of another replica failed');
        if (outgoing.headersSent) outgoing.destroy();
        else writeResponse(outgoing, refuse(toGatewayError(thrown)));
      },
    );
  };
}

async function answer(parts: ForwardedRequestsParts, exchange: ServedExchange, head: ForwardedHead): Promise<Response> {
  const whole = answerWhole(parts, exchange, head);
  if (whole !== undefined) return await whole;
  const { incoming, body } = exchange;
  if (body !== undefined) incoming.push(body, true);
  switch (head.kind) {
    case 'http':
      return await answerAny(parts, exchange, head);
    case 'modern':
      return await answerModern(parts, exchange, head);
    case 'message':
      return await receiveMessage(parts, exchange, head);
    case 'admin':
      // Replicas that answer operators do so before this.
      exchange.refuse(UNREADABLE);
      return RESPONSE_ALREADY_SENT;
  }
}

/**
 * Answers nearly every request: a POST of a session of this process, with a body that came at once. Returns undefined for all others, untouched.
 * The other replica has done what the edge does before it reads a body.
 */
function answerWhole(
  { front, endpoints, bodyBytes }: ForwardedRequestsParts,
  { incoming, outgoing, body }: ServedExchange,
  { kind, method, principal, view, target, hops = 0 }: ForwardedHead,
): Promise<Response> | undefined {
  if (kind !== 'http' || method !== 'POST' || body === undefined) return undefined;
  const headers = readHeaders(incoming);
  const { sessionId } = headers;
  if (sessionId === undefined || !front.hasView(view, principal) || !front.hasSession(sessionId)) return undefined;
  const form = postForm(headers.accept);
  if (form === undefined || refuseMedia(headers) !== undefined) return undefined;
  if (body.length > bodyBytes() || !isUtf8(body)) return undefined;
  const admitted = { headers, principal, passedOn: { target, hops: hops + 1 } };
  return endpoints.mcp.post(outgoing, view, admitted, form, body.toString());
}

/** Answers a request of a client as the edge does after admission. */
async function answerAny(
  { front, endpoints }: ForwardedRequestsParts,
  exchange: ServedExchange,
  { principal, view, target, hops = 0 }: ForwardedHead,
): Promise<Response> {
  if (!front.hasView(view, principal)) return endpoints.mcp.refuseEndpoint(view, principal);
  const headers = readHeaders(exchange.incoming);
  const admitted = { headers, principal, passedOn: { target, hops: hops + 1 } };
  const { sessionId } = headers;
  const { pathname = '', searchParams } = URL.parse(target, 'http://localhost') ?? {};
  if (pathname === '/messages') {
    return await endpoints.sse.post(exchange, searchParams?.get('sessionId') ?? undefined, { headers, principal });
  }
  if (sessionId !== undefined && !front.hasSession(sessionId)) {
    const ownership = await front.ownerOfSession(sessionId, principal, view, true);
    if (ownership.kind === 'elsewhere') {
      // Two replicas that disagree would pass it on for ever. One that leaves gives its sessions away.
      if (front.successor() !== undefined && hops < MAX_HOPS) {
        return await endpoints.mcp.answer(exchange, view, admitted, '');
      }
      exchange.refuse(MISDIRECTED);
      return RESPONSE_ALREADY_SENT;
    }
  }
  return await endpoints.mcp.answerHere(exchange, view, admitted, '');
}

/** Handles a message about a request that is in flight here, though another replica has its session by now. */
async function receiveMessage(
  { front, endpoints, bodyBytes }: ForwardedRequestsParts,
  exchange: ServedExchange,
  { principal, view, hops }: ForwardedHead,
): Promise<Response> {
  const headers = readHeaders(exchange.incoming);
  const limitBytes = BODY_FACTOR * bodyBytes() + BODY_EXTRA_BYTES;
  const limits = { limitBytes, budget: endpoints.mcp.memory.bodies, principal: principal.key };
  const text = await postedText(exchange, headers, limits);
  if (typeof text !== 'string') return text;
  const message = resultOrError(MessageError, () => parseMessage(text));
  if (!(message instanceof MessageError) && message.kind !== 'request')
    await front.handleLateMessage(headers.sessionId ?? '', principal, view, message, hops);
  exchange.outgoing.writeHead(204);
  exchange.outgoing.end();
  return RESPONSE_ALREADY_SENT;
}

/** Answers a request about a parked call or a task. */
async function answerModern(
  { front, endpoints, bodyBytes }: ForwardedRequestsParts,
  exchange: ServedExchange,
  { principal, headers }: ForwardedHead,
): Promise<Response> {
  const { incoming, outgoing } = exchange;
  const limitBytes = BODY_FACTOR * bodyBytes() + BODY_EXTRA_BYTES;
  const limits = { limitBytes, budget: endpoints.mcp.memory.bodies, principal: principal.key };
  const text = await postedText(exchange, readHeaders(incoming), limits);
  if (typeof text !== 'string') return text;
  const parsed = parseRequestBody(text, principal, headers);
  if (parsed === undefined) {
    exchange.refuse(UNREADABLE);
    return RESPONSE_ALREADY_SENT;
  }
  let call: ModernCall | undefined;
  let isAnswered = false;
  outgoing.on('close', () => {
    if (!isAnswered) call?.cancel('the client disconnected');
  });
  outgoing.writeHead(200, { 'content-type': 'application/x-ndjson' });
  const body = endpoints.mcp.beginForwarded(parsed.request, parsed.caller, text);
  if (body instanceof GatewayError) {
    outgoing.end(answerLine(toAnswer(body)));
    return RESPONSE_ALREADY_SENT;
  }
  const isListen = parsed.request.method === LISTEN;
  const sink: ModernSink = {
    receivedMs: performance.now(),
    send: (message) => {
      if (isListen) body?.release();
      if (isAnswered || outgoing.destroyed || outgoing.writableLength > UNSENT_BYTES) return false;
      outgoing.write(messageLine(message));
      return true;
    },
    answer: (final: Answer) => {
      isAnswered = true;
      body?.release();
      outgoing.end(answerLine(final));
    },
    keepText: (until) => body?.keepUntil(until),
  };
  call = front.handleModernRequest(parsed.request, parsed.caller, sink, undefined);
  if (outgoing.destroyed) {
    call.cancel('the client disconnected');
  } else if (isListen) {
    const listen = call;
    const { listens } = endpoints.mcp.forwarded;
    listens.add(listen);
    outgoing.on('close', () => listens.delete(listen));
  }
  return RESPONSE_ALREADY_SENT;
}

import { randomBytes } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Logger } from 'pino';
import { ssePath } from '../endpoint-path.ts';
import { failureOfRetry, GatewayError } from '../errors.ts';
import type { ClientHttp } from '../gateway/front/client-http.ts';
import { eventText, jsonEventText } from '../protocol/framing/event-stream.ts';
import { invalidAnswer, MessageError } from '../protocol/jsonrpc.ts';
import type { Principal } from '../policy/principal.ts';
import { getForm } from './admission/accept.ts';
import type { Admitted } from './admission/admission.ts';
import { idOf, readInput, refusedId, requestIn, toRefusal } from './classify.ts';
import { StreamCounts } from './memory/stream-counts.ts';
import type { LimitName } from '../limits.ts';
import { Peer } from './peer.ts';
import { postedText } from './admission/posted-text.ts';
import { refuse, refuseOver } from './admission/refusal.ts';
import type { McpParts } from './mcp.ts';
import { continuesCall, refusalOfInput, refuseForLoad } from './new-work.ts';
import { openWriter } from './streams/event-stream.ts';
import type { OpenStreams } from './streams/open-streams.ts';
import { resultOrError } from '../thrown.ts';

export interface SseParts extends Omit<McpParts, 'openEventLog' | 'onFailure'> {
  readonly log: Logger;
  /** Gets the subscription streams of these clients, beside all others. */
  readonly streams: OpenStreams;
}

interface SseClient {
  /** As in the request with the latest credentials, which may be newer than those that opened the stream. */
  principal: Principal;
  readonly view: string;
  readonly peer: Peer;
  end(): void;
}

const SECRET = /^(?<process>[\da-f-]{36})~(?<view>[a-z0-9-]*)~[\w-]+$/;

function streamEnded(): GatewayError {
  return new GatewayError('session-unknown', { message: 'open /sse again' });
}

/** Returns a secret for the POST path of a client. With several processes it names the one that has the stream. */
function secretOf(process: string | undefined, view: string): string {
  const random = randomBytes(24).toString('base64url');
  return process === undefined ? random : `${process}~${view}~${random}`;
}

/** Returns whether a token ends before another one. A request with the older one may arrive after a request with the newer one. */
function endsBefore({ expiresAtMs: one }: Principal, { expiresAtMs: other }: Principal): boolean {
  return one !== undefined && other !== undefined && one < other;
}

function endIfIdle(client: SseClient): void {
  if (!client.peer.isAnswering) client.end();
}

function partsOf(secret = ''): { readonly process: string; readonly view: string } | undefined {
  const { process, view } = SECRET.exec(secret)?.groups ?? {};
  return process === undefined || view === undefined ? undefined : { process, view };
}

/**
 * Serves HTTP+SSE of 2024-11-05: the first event of a GET stream names the path for POSTs. The session ends with the
 * stream.
 *
 * @see https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
 */
export class SseEndpoint {
  readonly #parts: SseParts;
  /** Clients by the secret in their POST path. */
  readonly #clients = new Map<string, SseClient>();
  readonly #counts: StreamCounts;
  #isDraining = false;

  constructor(parts: SseParts) {
    this.#parts = parts;
    const perPrincipal = () => parts.settings().limits.streamsPerPrincipal;
    this.#counts = new StreamCounts('SSE streams', perPrincipal, () => parts.metrics.countShed('streams'));
  }

  /** Returns whether a stream with this secret is open here, or may be in another process. */
  mayHave(id: string | undefined): boolean {
    return this.#clients.has(id ?? '') || partsOf(id) !== undefined;
  }

  /** Ends the streams of these principals, and so their sessions. */
  endStreams(isConcerned: (principal: Principal) => boolean): void {
    for (const client of this.#clients.values()) if (isConcerned(client.principal)) client.end();
  }

  open({ outgoing }: ClientHttp, view: string, { headers, principal }: Admitted): Response {
    const { front, timers, log, metrics, memory, load, streams, refusals } = this.#parts;
    if (getForm(headers.accept) !== 'events') {
      return refuse(new GatewayError('not-acceptable', { message: 'send Accept: text/event-stream' }));
    }
    const id = secretOf(front.processName, view);
    if (this.#isDraining) return refuse(new GatewayError('draining'));
    if (outgoing.destroyed) return RESPONSE_ALREADY_SENT;
    const refusal = load.refusalOf('session');
    if (refusal !== undefined) {
      this.#record(refusal.error, view, principal);
      return refuseForLoad(refusal);
    }
    const tooMany = this.#counts.add(principal.key);
    if (tooMany !== undefined) return refuse(tooMany);

    const shared = { timers, metrics, unsent: memory.unsent, principal: principal.key };
    const onGone = () => {
      this.#clients.delete(id);
      this.#counts.remove(principal.key);
      peer.close().catch((thrown: unknown) => log.error({ err: thrown }, 'session could not be closed'));
    };
    const writer = openWriter(outgoing, 'sse', shared, { onGone });
    const sink = { send: (text: string) => writer.writeText(jsonEventText({ data: text }), text) };
    const onEnd = () => writer.end();
    const onLimit = (limit: LimitName) => metrics.countLimit(limit);
    const peer = new Peer({ front, principal, view, sink, log, streams, refusals, onLimit, onEnd });
    this.#clients.set(id, { principal, view, peer, end: onEnd });
    writer.writeText(eventText({ event: 'endpoint', data: `/messages?sessionId=${id}` }), '');
    return RESPONSE_ALREADY_SENT;
  }

  /** Returns the view of the client with this secret, for which its credentials are checked. */
  viewOf(id: string | undefined): string {
    return this.#clients.get(id ?? '')?.view ?? partsOf(id)?.view ?? '';
  }

  async post(env: ClientHttp, id: string | undefined, { headers, principal }: Admitted): Promise<Response> {
    const client = this.#clients.get(id ?? '');
    const elsewhere = partsOf(id);
    if (client === undefined && elsewhere !== undefined) {
      const ownership = await this.#parts.front.ownerOfStream(elsewhere.process);
      if (ownership.kind === 'elsewhere') {
        const { incoming, outgoing } = env;
        // The stream is lost with its process, so it is of no use to try again.
        if ((await ownership.owner.forward(incoming, outgoing, principal, elsewhere.view)) === 'answered') {
          return RESPONSE_ALREADY_SENT;
        }
      }
    }
    const isOwn = client?.principal.key === principal.key && this.#parts.front.hasView(client.view, principal);
    if (client === undefined || !isOwn) {
      return refuse(this.#record(streamEnded(), client?.view, principal));
    }
    const isOver = this.#parts.challengeIfOver(client.principal, ssePath(client.view)) !== undefined;
    if (isOver || !endsBefore(principal, client.principal)) client.principal = principal;
    const { memory, settings } = this.#parts;
    const limits = { limitBytes: settings().limits.bodyBytes, budget: memory.bodies, principal: principal.key };
    const text = await postedText(env, headers, limits);
    if (typeof text !== 'string') return text;
    const challenge = this.#parts.challengeIfOver(principal, ssePath(client.view));
    if (challenge !== undefined) return refuseOver(challenge);
    // The stream may have ended while the body was received.
    if (this.#clients.get(id ?? '') !== client) return refuse(this.#record(streamEnded(), client.view, principal));
    const input = resultOrError(MessageError, () => readInput(text));
    if (input instanceof MessageError) {
      if (input.limit !== undefined) this.#parts.metrics.countLimit(input.limit);
      if (input.isResponse) await client.peer.receive(invalidAnswer(input), this.#parts.currentOf(principal));
      return refuse(this.#record(toRefusal(input), client.view, principal), refusedId(input));
    }
    const request = requestIn(input);
    if (this.#isDraining && request !== undefined) {
      const draining = new GatewayError('draining');
      return refuse(continuesCall(input) ? failureOfRetry(draining) : draining, request.id);
    }
    const refusal = refusalOfInput(this.#parts.load, input);
    if (refusal !== undefined) {
      this.#record(refusal.error, client.view, principal);
      return refuseForLoad(refusal, idOf(input));
    }
    const isCounted = request !== undefined || !('kind' in input);
    const body = isCounted ? memory.running.hold(principal.key, text, request) : undefined;
    if (body instanceof GatewayError) return refuse(this.#record(body, client.view, principal), idOf(input));
    env.outgoing.writeHead(202, { 'content-type': 'text/plain', 'content-length': 8 });
    env.outgoing.end('Accepted');
    await client.peer.receive(input, this.#parts.currentOf(principal), body);
    body?.release();
    if (this.#isDraining) endIfIdle(client);
    return RESPONSE_ALREADY_SENT;
  }

  /** Writes the record of a refusal, and returns it. */
  #record(error: GatewayError, view: string | undefined, principal: Principal): GatewayError {
    this.#parts.refusals?.record({ error, view, principal });
    return error;
  }

  /** Ends the streams on which no answer is due, and so their sessions. Refuses new streams and requests. */
  drain(): void {
    this.#isDraining = true;
    this.endIdle();
  }

  /** Ends the streams on which no answer is due, and so their sessions. */
  endIdle(): void {
    for (const client of this.#clients.values()) {
      client.peer.drain();
      endIfIdle(client);
    }
  }
}

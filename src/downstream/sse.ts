import { randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import type { Front, MessageSink } from '../gateway/front.ts';
import { eventText } from '../protocol/framing/event-stream.ts';
import { oneLine } from '../json/json.ts';
import { MessageError } from '../protocol/jsonrpc.ts';
import type { Principal } from '../policy/principal.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { getShape } from './admission/accept.ts';
import type { Admitted } from './admission/admission.ts';
import { readInput, toRefusal } from './classify.ts';
import { StreamCounts } from './memory/stream-counts.ts';
import type { ByteBudget } from './memory/byte-budget.ts';
import { textBytes } from './streams/event-log.ts';
import { StreamWriter } from './streams/stream-writer.ts';
import type { LimitName } from '../limits.ts';
import { Peer } from './peer.ts';
import { postedText } from './admission/posted-text.ts';
import type { EdgeMemory } from './memory/edge-memory.ts';
import type { EdgeTimers } from './streams/edge-timers.ts';
import { refuse } from './admission/refusal.ts';
import { EVENT_STREAM_HEADERS, STUCK_MS } from './streams/event-stream.ts';

export interface SseParts {
  readonly front: Front;
  readonly timers: EdgeTimers;
  readonly log: Logger;
  readonly metrics: Metrics | undefined;
  readonly memory: EdgeMemory;
  readonly bodyBytes: number;
  readonly streamsPerPrincipal: number;
}

/** The event stream of a 2024-11-05 client, which carries all messages to it. */
class EventSink implements MessageSink {
  readonly writer: StreamWriter;
  #seq = 0;

  constructor(
    response: ServerResponse,
    principal: string,
    budget: ByteBudget,
    onGone: () => void,
    onDropped: () => void,
  ) {
    this.writer = new StreamWriter(
      response,
      { onGone, onDropped },
      {
        isImpatient: true,
        budget,
        principal,
        onStall: (isStalled) => response.setTimeout(isStalled ? STUCK_MS : 0),
      },
    );
  }

  send(text: string): boolean {
    return this.#write('message', oneLine(text), text);
  }

  /** Sends the path to POST to. */
  sendEndpoint(path: string): void {
    this.#write('endpoint', path, '');
  }

  #write(event: string, data: string, message: string): boolean {
    if (this.writer.isGone) return false;
    const text = eventText({ event, data });
    this.writer.write({ seq: ++this.#seq, text, bytes: textBytes(text), atMs: 0 }, message);
    return true;
  }
}

interface SseClient {
  readonly principal: Principal;
  readonly view: string;
  readonly peer: Peer;
  /** Ends the stream. */
  end(): void;
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
  #bodyBytes: number;
  #isDraining = false;

  constructor(parts: SseParts) {
    this.#parts = parts;
    this.#counts = new StreamCounts(parts.streamsPerPrincipal);
    this.#bodyBytes = parts.bodyBytes;
  }

  /** Applies limits to later requests and streams. */
  setLimits(bodyBytes: number, streamsPerPrincipal: number): void {
    this.#bodyBytes = bodyBytes;
    this.#counts.perPrincipal = streamsPerPrincipal;
  }

  /** Ends the streams of these principals, and so their sessions. */
  endStreams(isConcerned: (principal: string) => boolean): void {
    for (const client of this.#clients.values()) if (isConcerned(client.principal.key)) client.end();
  }

  async open({ outgoing }: HttpBindings, view: string, { headers, principal }: Admitted): Promise<Response> {
    const { front, timers, log, metrics, memory } = this.#parts;
    if (getShape(headers.accept) !== 'events') {
      return refuse(new GatewayError('not-acceptable', { message: 'send Accept: text/event-stream' }));
    }
    const id = randomBytes(24).toString('base64url');
    // The secret has no owner yet, so it becomes that of this process.
    const ownership = await front.ownerOfSession(id);
    if (ownership.kind !== 'here') {
      return refuse(
        new GatewayError('internal-error', { message: 'another process has this session; open /sse again' }),
      );
    }
    if (this.#isDraining) return refuse(new GatewayError('draining'));
    if (outgoing.destroyed) return RESPONSE_ALREADY_SENT;
    if (!this.#counts.add(principal.key)) {
      metrics?.shed('streams');
      const message = `you have ${this.#counts.perPrincipal} SSE streams open; close one first`;
      return refuse(new GatewayError('overloaded', { message }));
    }

    const sink: EventSink = new EventSink(
      outgoing,
      principal.key,
      memory.unsent,
      () => {
        this.#clients.delete(id);
        this.#counts.remove(principal.key);
        timers.removeStream(sink.writer);
        metrics?.streams.sse.remove();
        peer.close().catch((thrown: unknown) => log.error({ err: thrown }, 'session could not be closed'));
      },
      () => metrics?.dropped('slow-client'),
    );
    const onLimit = (limit: LimitName) => metrics?.limitReached(limit);
    const peer = new Peer({ front, principal, view, sink, log, onLimit, onEnd: () => sink.writer.end() });
    this.#clients.set(id, { principal, view, peer, end: () => sink.writer.end() });
    timers.addStream(sink.writer);
    metrics?.streams.sse.add();
    outgoing.writeHead(200, EVENT_STREAM_HEADERS);
    sink.sendEndpoint(`/messages?sessionId=${id}`);
    return RESPONSE_ALREADY_SENT;
  }

  /** Returns the view of the client with this secret, for which its credentials are checked. */
  viewOf(id: string | undefined): string {
    return this.#clients.get(id ?? '')?.view ?? '';
  }

  async post(env: HttpBindings, id: string | undefined, { headers, principal }: Admitted): Promise<Response> {
    const client = this.#clients.get(id ?? '');
    if (client === undefined && id !== undefined) {
      const ownership = await this.#parts.front.ownerOfSession(id);
      if (ownership.kind === 'elsewhere') {
        await ownership.owner.forward(env.incoming, env.outgoing);
        return RESPONSE_ALREADY_SENT;
      }
    }
    if (client === undefined || client.principal.key !== principal.key) {
      return refuse(new GatewayError('session-unknown', { message: 'open /sse again' }));
    }
    const { memory } = this.#parts;
    const limits = { limitBytes: this.#bodyBytes, budget: memory.bodies, principal: principal.key };
    const text = await postedText(env, headers, limits);
    if (typeof text !== 'string') return text;
    let input;
    try {
      input = readInput(text);
    } catch (thrown) {
      if (!(thrown instanceof MessageError)) throw thrown;
      if (thrown.limit !== undefined) this.#parts.metrics?.limitReached(thrown.limit);
      return refuse(toRefusal(thrown), thrown.id);
    }
    if (this.#isDraining && 'kind' in input && input.kind === 'request') {
      return refuse(new GatewayError('draining'), input.id);
    }
    env.outgoing.writeHead(202, { 'content-type': 'text/plain', 'content-length': 8 });
    env.outgoing.end('Accepted');
    await client.peer.receive(input);
    return RESPONSE_ALREADY_SENT;
  }

  drain(): void {
    this.#isDraining = true;
  }
}

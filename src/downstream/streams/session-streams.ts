import { hash, randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { GatewayError, toAnswer } from '../../errors.ts';
import type { ClientSession } from '../../gateway/front.ts';
import { LIMITS } from '../../limits.ts';
import { type Id, responseText } from '../../protocol/jsonrpc.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import type { Metrics, StreamKind } from '../../telemetry/metrics.ts';
import { parseEventId } from './event-id.ts';
import { EventLog, type EventLimits } from './event-log.ts';
import type { EdgeTimers } from './edge-timers.ts';
import { EventStream, type StreamParts } from './event-stream.ts';

export interface StreamsParts {
  readonly limits: EventLimits;
  readonly timers: EdgeTimers;
  readonly metrics: Metrics | undefined;
}

const MINUTE_MS = 60_000;

const OUTCOME_UNKNOWN = toAnswer(
  new GatewayError('outcome-unknown', {
    message: 'the gateway no longer has the answer to this request; check what it did before sending it again',
  }),
);

/** The event streams of one session and what is kept of them. No other session can reach them. */
export class SessionStreams {
  readonly #session: ClientSession;
  readonly #parts: StreamParts;
  /** Makes stream names differ from those before a restart. */
  readonly #tag = randomBytes(6).toString('base64url');
  readonly #streams = new Map<string, EventStream>();
  #opened = 0;
  /** Streams that the client opened by GET since then. */
  #opens = 0;
  #opensSinceMs = 0;
  #resumedFrom: string | undefined;
  #listening: EventStream | undefined;

  constructor(session: ClientSession, { limits, timers, metrics }: StreamsParts) {
    this.#session = session;
    const { priming } = featuresOf(session.caller.revision);
    this.#parts = { log: new EventLog(limits), timers, metrics, isPriming: priming };
    timers.addExpiring(this);
    session.closed.addEventListener('abort', () => this.#close(), { once: true });
  }

  /** A stream for the answer to one POST. @param request undefined where it answers several. */
  open(response: ServerResponse, request?: Id): EventStream {
    const stream = this.#create('post', request);
    stream.attach(response);
    return stream;
  }

  /**
   * Counts one more GET of the client. Returns false where there were too many within the last minute. One that goes on from
   * a later event than the one before made progress, and is not counted.
   */
  mayOpen(nowMs: number, lastEventId: string | undefined): boolean {
    // Its hash, since a client chooses how long it is.
    const from = lastEventId === undefined ? undefined : hash('sha256', lastEventId);
    const isProgress = from !== undefined && from !== this.#resumedFrom;
    this.#resumedFrom = from;
    if (isProgress) return true;
    if (nowMs - this.#opensSinceMs > MINUTE_MS) {
      this.#opens = 0;
      this.#opensSinceMs = nowMs;
    }
    return ++this.#opens <= LIMITS.streamOpensPerMinute;
  }

  /** The session's own stream, in place of the one before. */
  listen(response: ServerResponse): void {
    // A session that somebody listens to is never idle, so nobody must not be taken for somebody.
    if (response.destroyed) return;
    this.#listening?.close();
    const stream = this.#create('get', undefined, () => this.#session.unlisten(stream));
    this.#listening = stream;
    stream.attach(response);
    this.#session.listen(stream);
  }

  /** Goes on with the stream a client lost, from the event it names. What is not known any more is said to be. */
  resume(response: ServerResponse, lastEventId: string): void {
    if (response.destroyed) return;
    const id = parseEventId(lastEventId);
    const stream = id === undefined ? undefined : this.#streams.get(id.stream);
    if (id !== undefined && stream !== undefined && (!stream.isFinished || this.#parts.log.has(stream.name))) {
      stream.attach(response, id.seq);
      if (stream === this.#listening) this.#session.listen(stream);
    } else if (id?.request === undefined) {
      this.listen(response);
    } else {
      this.open(response, id.request).finish(responseText(id.request, OUTCOME_UNKNOWN));
    }
  }

  /** Ends the stream on which nobody waits for an answer. */
  drain(): void {
    this.#listening?.close();
  }

  expire(nowMs: number): void {
    const { log } = this.#parts;
    log.expire(nowMs);
    for (const stream of this.#streams.values()) {
      if (stream.isFinished && !log.has(stream.name)) this.#streams.delete(stream.name);
    }
  }

  #create(kind: StreamKind, request: Id | undefined, left?: () => void): EventStream {
    const name = `${this.#tag}-${++this.#opened}`;
    const stream = new EventStream(name, kind, request, this.#parts, left);
    this.#streams.set(name, stream);
    return stream;
  }

  #close(): void {
    this.#parts.timers.removeExpiring(this);
    for (const stream of this.#streams.values()) stream.close();
    this.#streams.clear();
  }
}

import type { ServerResponse } from 'node:http';
import type { MessageSink } from '../../gateway/front.ts';
import { eventText } from '../../protocol/event-stream.ts';
import { oneLine } from '../../json/json.ts';
import type { Id } from '../../protocol/jsonrpc.ts';
import type { Metrics, StreamKind } from '../../telemetry/metrics.ts';
import { requestSuffix } from './event-id.ts';
import type { EventLog, StreamEvent } from './event-log.ts';
import { StreamWriter } from './stream-writer.ts';
import type { EdgeTimers } from './edge-timers.ts';

/** How soon a client should come back when a stream ends before its answer. */
const RETRY_MS = 1_000;
/** A reader that took nothing for this long is no reader. */
export const STUCK_MS = 30_000;
/** Then the client has to show that it is still there, by coming back. */
const MAX_AGE_MS = 3_600_000;

export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache, no-store',
  // Reverse proxies of the nginx kind would hold events back.
  'x-accel-buffering': 'no',
} as const;

export interface StreamParts {
  readonly log: EventLog;
  readonly timers: EdgeTimers;
  readonly metrics: Metrics | undefined;
  /** Whether the client survives an event without data, and comes back when a stream ends after one. */
  readonly isPriming: boolean;
}

/**
 * One stream of events toward a client, which outlives its sockets: what is said while none is attached is kept for a client
 * that comes back. At most one socket is attached, and each event is written to it once.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
 */
export class EventStream implements MessageSink {
  readonly name: string;
  readonly kind: StreamKind;
  readonly #suffix: string;
  readonly #parts: StreamParts;
  readonly #onGone: (() => void) | undefined;
  #seq = 0;
  #isKnown = false;
  #isFinished = false;
  #writer: StreamWriter | undefined;

  /**
   * @param request whose answer ends the stream, where it is one.
   * @param left told when the client is gone and nobody is attached.
   */
  constructor(name: string, kind: StreamKind, request: Id | undefined, parts: StreamParts, left?: () => void) {
    this.name = name;
    this.kind = kind;
    this.#suffix = requestSuffix(request);
    this.#parts = parts;
    this.#onGone = left;
    parts.log.open(name, kind === 'get');
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Writes to this response from now on, after everything with a higher number than `afterSeq`. */
  attach(response: ServerResponse, afterSeq?: number): void {
    const { log, timers, metrics, isPriming } = this.#parts;
    this.#detach();
    const writer: StreamWriter = new StreamWriter(
      response,
      {
        onWritten: (streamEvent) => log.keep(this.name, streamEvent),
        onGone: (unsent) => this.#onLost(writer, unsent),
        onDropped: () => metrics?.dropped('slow-client'),
      },
      {
        isImpatient: true,
        maxAgeMs: this.kind === 'get' || isPriming ? MAX_AGE_MS : undefined,
        // Node closes a socket when this runs out, and counts bytes taken in between.
        onStall: (isStalled) => response.setTimeout(isStalled ? STUCK_MS : 0),
      },
    );
    this.#writer = writer;
    metrics?.streams[this.kind].add();
    timers.addStream(writer);

    response.writeHead(200, EVENT_STREAM_HEADERS);
    if (afterSeq === undefined && isPriming) {
      this.#isKnown = true;
      response.write(eventText({ id: this.#eventId(0), data: '', retryMs: RETRY_MS }));
    } else {
      response.flushHeaders();
    }
    if (afterSeq !== undefined) writer.replay(log.append(this.name, afterSeq));
    if (this.#isFinished) writer.end();
  }

  send(text: string): boolean {
    if (this.#isFinished) return false;
    // Nobody is there, and nobody can ask for it later without an id to ask with.
    if (this.#writer === undefined && !this.#isKnown) return false;
    this.#append(text);
    return true;
  }

  /** Says the last there is to say, if anything, and ends. */
  finish(...texts: readonly string[]): void {
    for (const text of texts) this.send(text);
    this.#isFinished = true;
    this.#parts.log.finish(this.name, performance.now());
    this.#writer?.end();
  }

  /** Ends without regard for what was to come, and forgets all. */
  close(): void {
    this.#isFinished = true;
    this.#detach();
    this.#parts.log.drop(this.name);
  }

  #append(text: string): void {
    const seq = ++this.#seq;
    const event = eventText({ id: this.#eventId(seq), data: oneLine(text) });
    const streamEvent: StreamEvent = { seq, text: event, bytes: Buffer.byteLength(event), atMs: performance.now() };
    this.#isKnown = true;
    if (this.#writer === undefined) this.#parts.log.keep(this.name, streamEvent);
    else this.#writer.write(streamEvent, text);
  }

  #eventId(seq: number): string {
    return `${this.name}.${seq}${this.#suffix}`;
  }

  #detach(): void {
    const writer = this.#writer;
    if (writer === undefined) return;
    this.#writer = undefined;
    this.#closed(writer);
    for (const streamEvent of writer.release()) this.#parts.log.keep(this.name, streamEvent);
  }

  #onLost(writer: StreamWriter, unsent: readonly StreamEvent[]): void {
    for (const streamEvent of unsent) this.#parts.log.keep(this.name, streamEvent);
    if (this.#writer !== writer) return;
    this.#writer = undefined;
    this.#closed(writer);
    this.#onGone?.();
  }

  #closed(writer: StreamWriter): void {
    this.#parts.timers.removeStream(writer);
    this.#parts.metrics?.streams[this.kind].remove();
  }
}

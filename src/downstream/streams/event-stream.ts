import { randomInt } from 'node:crypto';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { MessageSink } from '../../gateway/front/front.ts';
import { eventText, jsonEventText } from '../../protocol/framing/event-stream.ts';
import type { Id } from '../../protocol/jsonrpc.ts';
import type { Metrics, StreamKind } from '../../telemetry/metrics.ts';
import type { ByteBudget } from '../memory/byte-budget.ts';
import { requestSuffix } from './event-id.ts';
import { type EventLog, type StreamEvent, textBytes } from './event-log.ts';
import { StreamWriter, type StreamWriterHandler } from './stream-writer.ts';
import type { EdgeTimers } from './edge-timers.ts';

/** Delays after which a client should resume a stream whose connection has been ended. */
const MIN_REOPEN_MS = 100;
const MAX_REOPEN_MS = 1_000;
/** The same if the process ends and no other one can open it. Two delays outlast a restart: the SDKs try twice, and never again. */
const MIN_RESTART_MS = 2_000;
const MAX_RESTART_MS = 4_000;
/** Delay after which a client should resume a stream that was lost, perhaps with the process. */
const RETRY_MS = 3_000;
/** The HTTP client of Java. The Java SDK up to 2.0.1 ends a stream with an error at a line with `retry`. */
const JAVA = 'Java-http-client/';
/** A client that reads nothing for this long is disconnected. */
export const STUCK_MS = 30_000;
/** Maximum age of a connection. Only clients that still exist resume the stream. */
const MAX_AGE_MS = 3_600_000;

export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream',
  // A proxy that compresses would hold events back.
  'cache-control': 'no-cache, no-store, no-transform',
  // Reverse proxies such as nginx would buffer events otherwise.
  'x-accel-buffering': 'no',
} as const;

interface WriterParts {
  readonly timers: EdgeTimers;
  readonly metrics: Metrics;
  /** Bounds the events that wait for slow readers. */
  readonly unsent: ByteBudget;
  readonly principal: string;
}

/**
 * Opens a writer of events to a client, with keep-alives. Disconnects a client that reads too slowly. One of HTTP+SSE would lose its session and all
 * answers that are due, so it loses notifications instead. The first event sends the headers.
 */
export function openWriter(
  response: ClientResponse,
  kind: StreamKind,
  { timers, metrics, unsent, principal }: WriterParts,
  handler: Pick<StreamWriterHandler, 'beforeWrite' | 'onGone'>,
  maxAgeMs?: number,
): StreamWriter {
  const writer: StreamWriter = new StreamWriter(
    response,
    {
      ...handler,
      onEnd: () => {
        timers.removeStream(writer);
        metrics.streams[kind].remove();
      },
      onDropped: () => metrics.countDropped('slow-client'),
    },
    {
      isImpatient: kind !== 'sse',
      maxAgeMs,
      budget: unsent,
      principal,
      // Node destroys the socket after this time without progress.
      onStall: (isStalled) => response.setTimeout(isStalled ? STUCK_MS : 0),
    },
  );
  metrics.streams[kind].add();
  timers.addStream(writer);
  response.writeHead(200, EVENT_STREAM_HEADERS);
  return writer;
}

export interface EventStreamParts extends WriterParts {
  readonly log: EventLog;
  /** True if the client accepts an event without data, and resumes a stream that ends after one. */
  readonly isPriming: boolean;
}

/**
 * One stream of events to a client. It outlives its connections: without a connection, events are kept for a client
 * that resumes. It has at most one connection at a time, and writes each event once.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
 */
export class EventStream implements MessageSink {
  readonly name: string;
  readonly kind: StreamKind;
  readonly #suffix: string;
  readonly #parts: EventStreamParts;
  readonly #onGone: (() => void) | undefined;
  #seq = 0;
  /** True if an event id was written. Without one, a client cannot resume. */
  #isResumable = false;
  #readsRetry = true;
  #isFinished = false;
  #writer: StreamWriter | undefined;

  /**
   * @param request the request whose answer ends the stream; undefined if there is not exactly one.
   * @param onGone called when a connection ends that no other one replaces.
   * @param recovered the state of a stream that another process has begun; the log has it already.
   */
  constructor(
    name: string,
    kind: StreamKind,
    request: Id | undefined,
    parts: EventStreamParts,
    onGone?: () => void,
    recovered?: { readonly seq: number; readonly isFinished: boolean },
  ) {
    this.name = name;
    this.kind = kind;
    this.#suffix = requestSuffix(request);
    this.#parts = parts;
    this.#onGone = onGone;
    if (recovered === undefined) {
      parts.log.open(name, kind === 'get');
      return;
    }
    this.#seq = recovered.seq;
    this.#isFinished = recovered.isFinished;
    this.#isResumable = true;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  get isConnected(): boolean {
    return this.#writer !== undefined;
  }

  /** Returns what a client with the events up to `seq` needs of a finished stream. `lost`: its end is not kept. */
  missingAfter(seq: number): 'nothing' | 'lost' | 'events' {
    if (seq >= this.#seq) return 'nothing';
    const isKept = this.#writer !== undefined || this.#parts.log.hasAfter(this.name, this.#seq - 1);
    return isKept ? 'events' : 'lost';
  }

  /** Connects the stream to this response. Writes all kept events with a higher number than `afterSeq` first. */
  attach(response: ClientResponse, afterSeq?: number): void {
    const { log, isPriming } = this.#parts;
    this.#detach();
    const beforeWrite = (streamEvent: StreamEvent) => {
      const kept = this.#keep(streamEvent);
      this.#isResumable = true;
      return kept;
    };
    const onGone = (events: readonly StreamEvent[]) => this.#onDisconnect(writer, events);
    const maxAgeMs = this.kind === 'get' || isPriming ? MAX_AGE_MS : undefined;
    const writer: StreamWriter = openWriter(response, this.kind, this.#parts, { beforeWrite, onGone }, maxAgeMs);
    this.#writer = writer;
    this.#readsRetry = response.req.headers['user-agent']?.startsWith(JAVA) !== true;
    if (afterSeq === undefined && isPriming) {
      this.#isResumable = true;
      response.write(eventText({ id: this.#eventId(0), data: '', retryMs: this.#readsRetry ? RETRY_MS : undefined }));
    } else {
      response.flushHeaders();
    }
    if (afterSeq !== undefined) {
      this.#isResumable = true;
      writer.replay(log.takeAfter(this.name, afterSeq));
    }
    if (this.#isFinished) writer.end();
  }

  send(text: string): boolean {
    if (this.#isFinished) return false;
    // No client can request this event: there is no connection and no earlier event id.
    if (this.#writer === undefined && !this.#isResumable) return false;
    this.#append(text);
    return true;
  }

  /** Sends an event that another process has added to this stream. */
  relay(streamEvent: StreamEvent): void {
    this.#seq = Math.max(this.#seq, streamEvent.seq);
    if (this.#writer === undefined) void this.#keep(streamEvent);
    else this.#writer.write(streamEvent, '');
  }

  /** Sends the last messages, if any, and ends the stream. */
  finish(...texts: readonly string[]): void {
    for (const text of texts) this.send(text);
    this.#isFinished = true;
    this.#parts.log.finish(this.name, performance.now(), this.#seq);
    this.#writer?.end();
  }

  /** Ends the stream at once and keeps no events. */
  close(): void {
    const wasConnected = this.isConnected;
    this.#isFinished = true;
    this.#detach();
    this.#parts.log.remove(this.name);
    if (wasConnected) this.#onGone?.();
  }

  /** Ends the connection, and keeps the events that the client then gets by resuming the stream. Clients do so at different times. */
  interrupt(isForRestart = false): void {
    const delayMs = isForRestart ? randomInt(MIN_RESTART_MS, MAX_RESTART_MS) : randomInt(MIN_REOPEN_MS, MAX_REOPEN_MS);
    if (this.#readsRetry) this.#writer?.comment(`retry: ${delayMs}\n\n`);
    this.#writer?.interrupt();
  }

  #append(text: string): void {
    const seq = ++this.#seq;
    const event = jsonEventText({ id: this.#eventId(seq), data: text });
    const streamEvent: StreamEvent = { seq, text: event, bytes: textBytes(event), atMs: performance.now() };
    if (this.#writer === undefined) void this.#keep(streamEvent);
    else this.#writer.write(streamEvent, text);
  }

  /** Returns a promise if the event must not be written before it is kept. */
  #keep(streamEvent: StreamEvent): Promise<boolean> | undefined {
    // A client without an earlier event id cannot ask for this event.
    return this.#isResumable ? this.#parts.log.append(this.name, streamEvent) : undefined;
  }

  #eventId(seq: number): string {
    return `${this.name}.${seq}${this.#suffix}`;
  }

  #detach(): void {
    const writer = this.#writer;
    if (writer === undefined) return;
    this.#writer = undefined;
    for (const streamEvent of writer.release()) void this.#keep(streamEvent);
  }

  #onDisconnect(writer: StreamWriter, unsent: readonly StreamEvent[]): void {
    for (const streamEvent of unsent) void this.#keep(streamEvent);
    if (this.#writer !== writer) return;
    this.#writer = undefined;
    this.#onGone?.();
  }
}

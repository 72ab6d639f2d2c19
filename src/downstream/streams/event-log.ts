import type { ByteAccount, ByteBudget, ByteHolder } from '../memory/byte-budget.ts';

/** One event of a stream, in its wire form. */
export interface StreamEvent {
  /** Counts from 1 within its stream. */
  readonly seq: number;
  readonly text: string;
  /** Memory of the text in bytes; see {@link textBytes}. */
  readonly bytes: number;
  /** Monotonic ms. */
  readonly atMs: number;
}

/** Bounds on the kept events of one session. */
export interface EventLimits {
  readonly events: number;
  readonly bytes: number;
}

interface StreamLog {
  events: StreamEvent[];
  finishedMs: number | undefined;
  /** True if no client waits for the end of the stream, so that events may expire one by one. */
  readonly isEndless: boolean;
}

/** A client can resume a stream for this long after its end. */
const KEEP_MS = 300_000;

/** Measured memory of an event besides its text, and of a stream besides its events, in bytes. */
const EVENT_BYTES = 160;
const STREAM_BYTES = 1_024;

/**
 * Returns the memory of a text in bytes: V8 uses one byte per character for ASCII, and up to two otherwise. Also
 * flattens the text, so that it no longer retains the message that parts of it come from.
 */
export function textBytes(text: string): number {
  return Buffer.byteLength(text) === text.length ? text.length : 2 * text.length;
}

/**
 * Keeps the events sent to one session, for clients that resume a stream. Bounded per session and, by the budget, over
 * all sessions.
 *
 * If a bound is exceeded, the oldest finished stream is removed first, then the oldest event of an unfinished stream.
 */
export class EventLog implements ByteHolder {
  readonly #limits: EventLimits;
  readonly #account: ByteAccount;
  readonly #onRemoved: (stream: string) => void;
  /** In the order of opening. */
  readonly #streams = new Map<string, StreamLog>();
  #count = 0;
  #bytes = 0;

  /** @param onRemoved called when nothing of a stream is kept any more. */
  constructor(limits: EventLimits, budget: ByteBudget, principal: string, onRemoved: (stream: string) => void) {
    this.#limits = limits;
    this.#account = budget.join(principal, this);
    this.#onRemoved = onRemoved;
  }

  get heldBytes(): number {
    return this.#bytes;
  }

  open(stream: string, isEndless: boolean): void {
    this.#streams.set(stream, { events: [], finishedMs: undefined, isEndless });
    this.#add(STREAM_BYTES);
  }

  has(stream: string): boolean {
    return this.#streams.has(stream);
  }

  /** Keeps an event of an open stream. The caller adds events in the order of `seq`. */
  keep(stream: string, streamEvent: StreamEvent): void {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) return;
    streamLog.events.push(streamEvent);
    this.#count++;
    this.#add(EVENT_BYTES + streamEvent.bytes);
    while (this.#count > this.#limits.events && this.#removeOldest());
    while (this.#bytes > this.#limits.bytes && this.#removeOldest());
  }

  finish(stream: string, nowMs: number): void {
    const streamLog = this.#streams.get(stream);
    if (streamLog !== undefined) streamLog.finishedMs = nowMs;
  }

  /** Returns whether an event with a higher number is kept. */
  hasAfter(stream: string, seq: number): boolean {
    const last = this.#streams.get(stream)?.events.at(-1);
    return last !== undefined && last.seq > seq;
  }

  /** Removes the events with a higher number and returns them. */
  takeAfter(stream: string, seq: number): readonly StreamEvent[] {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) return [];
    const from = streamLog.events.findIndex((streamEvent) => streamEvent.seq > seq);
    if (from < 0) return [];
    const taken = streamLog.events.splice(from);
    for (const streamEvent of taken) this.#subtract(streamEvent);
    return taken;
  }

  remove(stream: string): void {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) return;
    for (const streamEvent of streamLog.events) this.#subtract(streamEvent);
    this.#streams.delete(stream);
    this.#bytes -= STREAM_BYTES;
    this.#account.subtract(STREAM_BYTES);
    this.#onRemoved(stream);
  }

  expire(nowMs: number): void {
    for (const [stream, streamLog] of this.#streams) {
      if (streamLog.finishedMs !== undefined) {
        if (nowMs - streamLog.finishedMs > KEEP_MS) this.remove(stream);
      } else if (streamLog.isEndless) {
        while (streamLog.events[0] !== undefined && nowMs - streamLog.events[0].atMs > KEEP_MS) {
          this.#removeFirst(streamLog);
        }
      }
    }
  }

  shed(bytes: number): void {
    const untilBytes = this.#bytes - bytes;
    while (this.#bytes > untilBytes && this.#removeOldest());
  }

  /** Removes all streams, and leaves the budget. */
  close(): void {
    for (const stream of this.#streams.keys()) this.remove(stream);
    this.#account.leave();
  }

  /** Removes the oldest kept data. Returns false if only unfinished streams without events are left. */
  #removeOldest(): boolean {
    for (const [stream, streamLog] of this.#streams) {
      if (streamLog.finishedMs === undefined) continue;
      this.remove(stream);
      return true;
    }
    for (const streamLog of this.#streams.values()) {
      if (streamLog.events.length === 0) continue;
      this.#removeFirst(streamLog);
      return true;
    }
    return false;
  }

  #removeFirst(streamLog: StreamLog): void {
    const streamEvent = streamLog.events.shift();
    if (streamEvent !== undefined) this.#subtract(streamEvent);
  }

  #add(bytes: number): void {
    this.#bytes += bytes;
    this.#account.add(bytes);
  }

  #subtract(streamEvent: StreamEvent): void {
    const bytes = EVENT_BYTES + streamEvent.bytes;
    this.#count--;
    this.#bytes -= bytes;
    this.#account.subtract(bytes);
  }
}

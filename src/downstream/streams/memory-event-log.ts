import type { ClientSession } from '../../gateway/front/front.ts';
import type { ByteAccount, ByteBudget, ByteHolder } from '../memory/byte-budget.ts';
import type { EventLog, StreamEvent } from './event-log.ts';

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
 * Keeps the events of one session in memory. Bounded per session and, by the budget, over all sessions.
 *
 * If a bound is exceeded, the oldest finished stream is removed first, then the oldest event of an unfinished stream, then the
 * oldest stream. An unfinished stream that is removed continues, and cannot be resumed.
 */
export class MemoryEventLog implements EventLog, ByteHolder {
  readonly #limits: EventLimits;
  readonly #account: ByteAccount;
  readonly #onRemoved: (stream: string) => void;
  /** In the order of opening. */
  readonly #streams = new Map<string, StreamLog>();
  #count = 0;
  #bytes = 0;
  #isClosed = false;

  /** @param onRemoved called when nothing of a stream is kept any more, and again when such a stream ends. */
  constructor(limits: EventLimits, budget: ByteBudget, principal: string, onRemoved: (stream: string) => void) {
    this.#limits = limits;
    this.#account = budget.join(principal, this);
    this.#onRemoved = onRemoved;
  }

  get heldBytes(): number {
    return this.#bytes;
  }

  open(stream: string, isEndless: boolean): void {
    // Nobody would subtract its bytes from the budget.
    if (this.#isClosed) return;
    this.#streams.set(stream, { events: [], finishedMs: undefined, isEndless });
    this.#add(STREAM_BYTES);
    this.#trim();
  }

  has(stream: string): boolean {
    return this.#streams.has(stream);
  }

  append(stream: string, streamEvent: StreamEvent): undefined {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) return;
    streamLog.events.push(streamEvent);
    this.#count++;
    this.#add(EVENT_BYTES + streamEvent.bytes);
    this.#trim();
  }

  finish(stream: string, nowMs: number): void {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) this.#onRemoved(stream);
    else streamLog.finishedMs = nowMs;
  }

  hasAfter(stream: string, seq: number): boolean {
    const last = this.#streams.get(stream)?.events.at(-1);
    return last !== undefined && last.seq > seq;
  }

  takeAfter(stream: string, seq: number): readonly StreamEvent[] {
    const streamLog = this.#streams.get(stream);
    if (streamLog === undefined) return [];
    const from = streamLog.events.findIndex((streamEvent) => streamEvent.seq > seq);
    if (from < 0) return [];
    const taken = streamLog.events.splice(from);
    for (const streamEvent of taken) this.#subtract(streamEvent);
    return taken;
  }

  async recover(): Promise<undefined> {
    // Nothing outlives this process.
  }

  async follow(): Promise<undefined> {
    // Nobody else writes here.
  }

  remove(stream: string): void {
    const streamLog = this.#streams.get(stream);
    if (streamLog !== undefined) {
      for (const streamEvent of streamLog.events) this.#subtract(streamEvent);
      this.#streams.delete(stream);
      this.#bytes -= STREAM_BYTES;
      this.#account.subtract(STREAM_BYTES);
    }
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
    this.#isClosed = true;
    for (const stream of this.#streams.keys()) this.remove(stream);
    this.#account.leave();
  }

  /** Removes the oldest kept data beyond the limits of the session. */
  #trim(): void {
    while (this.#count > this.#limits.events && this.#removeOldest());
    while (this.#bytes > this.#limits.bytes && this.#removeOldest());
  }

  /** Removes the oldest kept data. Returns false if nothing is left. */
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
    const [oldest] = this.#streams.keys();
    if (oldest === undefined) return false;
    this.remove(oldest);
    return true;
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

type OpenMemoryLog = (session: Pick<ClientSession, 'caller'>, onRemoved: (stream: string) => void) => MemoryEventLog;

/** Keeps events in memory alone. @param budget of the logs of all sessions. */
export function memoryEventLogs(limits: EventLimits, budget: ByteBudget): OpenMemoryLog {
  return ({ caller }, onRemoved) => new MemoryEventLog(limits, budget, caller.principal.key, onRemoved);
}

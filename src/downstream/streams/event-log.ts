/** One event of a stream as it goes over the wire. */
export interface StreamEvent {
  /** Counts from 1 within its stream. */
  readonly seq: number;
  readonly text: string;
  readonly bytes: number;
  /** Monotonic ms. */
  readonly atMs: number;
}

export interface EventLimits {
  readonly events: number;
  readonly bytes: number;
}

interface StreamLog {
  events: StreamEvent[];
  finishedMs: number | undefined;
  /** It has no end that a client waits for, so old events are worth nothing. */
  readonly endless: boolean;
}

/** For this long a client can come back for what it missed. */
const KEEP_MS = 300_000;

/**
 * What was sent to one session, for clients that come back: per stream, in order, bounded over all of them.
 *
 * When there is too much, the oldest answered stream goes first, then the oldest event of a stream under way.
 */
export class EventLog {
  readonly #limits: EventLimits;
  /** In the order they were opened. */
  readonly #tracks = new Map<string, StreamLog>();
  #count = 0;
  #bytes = 0;

  constructor(limits: EventLimits) {
    this.#limits = limits;
  }

  get bytes(): number {
    return this.#bytes;
  }

  open(stream: string, endless: boolean): void {
    this.#tracks.set(stream, { events: [], finishedMs: undefined, endless });
  }

  has(stream: string): boolean {
    return this.#tracks.has(stream);
  }

  /** Pieces of one stream are kept in the order of their numbers. */
  keep(stream: string, streamEvent: StreamEvent): void {
    const track = this.#tracks.get(stream);
    if (track === undefined) return;
    track.events.push(streamEvent);
    this.#count++;
    this.#bytes += streamEvent.bytes;
    while (this.#count > this.#limits.events || this.#bytes > this.#limits.bytes) this.#forgetOldest();
  }

  finish(stream: string, nowMs: number): void {
    const track = this.#tracks.get(stream);
    if (track !== undefined) track.finishedMs = nowMs;
  }

  /** Hands out what is kept of a stream after a number; the log no longer has it. */
  append(stream: string, afterSeq: number): readonly StreamEvent[] {
    const track = this.#tracks.get(stream);
    if (track === undefined) return [];
    const from = track.events.findIndex(({ seq }) => seq > afterSeq);
    if (from < 0) return [];
    const taken = track.events.splice(from);
    for (const streamEvent of taken) this.#forget(streamEvent);
    return taken;
  }

  drop(stream: string): void {
    for (const streamEvent of this.#tracks.get(stream)?.events ?? []) this.#forget(streamEvent);
    this.#tracks.delete(stream);
  }

  expire(nowMs: number): void {
    for (const [stream, track] of this.#tracks) {
      if (track.finishedMs !== undefined) {
        if (nowMs - track.finishedMs > KEEP_MS) this.drop(stream);
      } else if (track.endless) {
        while (track.events[0] !== undefined && nowMs - track.events[0].atMs > KEEP_MS) this.#shift(track);
      }
    }
  }

  #forgetOldest(): void {
    for (const [stream, track] of this.#tracks) {
      if (track.finishedMs !== undefined) return this.drop(stream);
    }
    for (const track of this.#tracks.values()) {
      if (track.events.length > 0) return this.#shift(track);
    }
  }

  #shift(track: StreamLog): void {
    const streamEvent = track.events.shift();
    if (streamEvent !== undefined) this.#forget(streamEvent);
  }

  #forget(streamEvent: StreamEvent): void {
    this.#count--;
    this.#bytes -= streamEvent.bytes;
  }
}

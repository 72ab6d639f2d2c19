import { ArraySet } from '../../small-collections.ts';
import { COMMENT } from '../../protocol/framing/event-stream.ts';
import type { StreamWriter } from './stream-writer.ts';

interface ExpiringState {
  expire(nowMs: number): void;
}

const SWEEP_MS = 400;
/** Event logs are checked once in this many sweeps, because they keep events for minutes. */
const EXPIRE_SWEEPS = 16;
/** Keep-alives are sent in this many parts, each to other streams. To 10 000 streams at once they take the loop up to a second. */
const KEEP_ALIVE_PARTS = 50;

/** Runs the timers that all streams share, for sweeps and for keep-alives. A timer runs only while it has work. */
export class EdgeTimers {
  readonly #keepAliveMs: number;
  /**
   * The open streams by {@link StreamWriter.keepAlivePart}. Answers in the form of events are streams, too: they come and go with every
   * request. One {@link ArraySet} of all would take long to remove an early one of thousands.
   */
  readonly #parts = Array.from({ length: KEEP_ALIVE_PARTS }, () => new ArraySet<StreamWriter>());
  #openCount = 0;
  readonly #expiring = new Set<ExpiringState>();
  #sweeping: NodeJS.Timeout | undefined;
  #keepingAlive: NodeJS.Timeout | undefined;
  #sweeps = 0;
  #lastPart = 0;
  #added = 0;

  constructor(keepAliveMs: number) {
    this.#keepAliveMs = keepAliveMs;
  }

  addStream(writer: StreamWriter): void {
    writer.keepAlivePart = ++this.#added % KEEP_ALIVE_PARTS;
    this.#parts[writer.keepAlivePart]?.add(writer);
    this.#openCount++;
    this.#run();
    this.#keepingAlive ??= setInterval(() => this.#keepAlive(), this.#keepAliveMs / KEEP_ALIVE_PARTS).unref();
  }

  removeStream(writer: StreamWriter): void {
    if (this.#parts[writer.keepAlivePart]?.delete(writer) === true) this.#openCount--;
  }

  addExpiring(log: ExpiringState): void {
    this.#expiring.add(log);
    this.#run();
  }

  removeExpiring(log: ExpiringState): void {
    this.#expiring.delete(log);
  }

  #run(): void {
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const part of this.#parts) for (const writer of part) writer.sweep(nowMs);
    if (++this.#sweeps % EXPIRE_SWEEPS === 0) {
      for (const log of this.#expiring) log.expire(nowMs);
    }
    if (this.#openCount > 0 || this.#expiring.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #keepAlive(): void {
    this.#lastPart = (this.#lastPart + 1) % KEEP_ALIVE_PARTS;
    for (const writer of this.#parts[this.#lastPart] ?? []) writer.comment(COMMENT);
    if (this.#openCount > 0) return;
    clearInterval(this.#keepingAlive);
    this.#keepingAlive = undefined;
  }
}

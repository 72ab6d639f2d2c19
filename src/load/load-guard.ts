import type { Logger } from 'pino';
import type { Settings } from '../config/values/config.ts';
import { GatewayError } from '../errors.ts';
import type { Load, LoadRefusal, Work } from './load.ts';
import { MemoryMeter } from './memory-meter.ts';
import { LEAST_FOR_DELAY, LEAST_FOR_MEMORY, Overload, type OverloadReason } from './overload.ts';

export interface LoadGuardParts {
  readonly settings: Settings<'overload'>;
  /** Returns the number of requests that are not answered yet, without event streams. */
  readonly inFlight: () => number;
  /** Releases what can be made again. */
  readonly dropCaches: () => void;
  /** Closes the connections of the readers for whom most is kept. */
  readonly closeReaders: () => void;
  readonly onShed: (reason: OverloadReason) => void;
  readonly log: Logger;
  /** Default: that of this process. */
  readonly meter?: Pick<MemoryMeter, 'usedShare'> & Disposable;
}

/** The interval at which the delay of the event loop is measured, and how many of them lie between two measurements of memory. */
const TURN_MS = 100;
const TURNS_PER_MEMORY = 5;

const RETRY_SECONDS: Readonly<Record<OverloadReason, number>> = { 'loop-delay': 2, memory: 5 };
const LEAST: Readonly<Record<OverloadReason, number>> = { 'loop-delay': LEAST_FOR_DELAY, memory: LEAST_FOR_MEMORY };
const WHY: Readonly<Record<OverloadReason, string>> = {
  'loop-delay': 'the gateway has more requests than it can serve in time',
  memory: 'the gateway has hardly any memory left',
};

/** Measures the event loop and the memory of this process, and refuses new work while there is too much of it. */
export class LoadGuard implements Load, Disposable {
  readonly #parts: LoadGuardParts;
  readonly #overload = new Overload();
  readonly #meter: Pick<MemoryMeter, 'usedShare'> & Disposable;
  readonly #timer: NodeJS.Timeout;
  #lastMs = performance.now();
  #turns = 0;
  #memory = 0;
  #isHigh = false;

  constructor(parts: LoadGuardParts) {
    this.#parts = parts;
    this.#meter = parts.meter ?? new MemoryMeter();
    this.#timer = setInterval(() => this.#onTurn(), TURN_MS).unref();
  }

  get isHigh(): boolean {
    return this.#isHigh;
  }

  /** The median of the latest delays of the event loop, in ms. */
  get delayMs(): number {
    return this.#overload.delayMs;
  }

  /** The share of the memory limit that is used, 0 to about 1. */
  get memory(): number {
    return this.#memory;
  }

  /** The reasons for which new work is refused, in words. */
  get reasons(): readonly string[] {
    return this.#overload.reasons.map(
      (reason) => `refuses new requests while ${LEAST[reason]} or more are in flight: ${WHY[reason]}`,
    );
  }

  refusalOf(work: Work): LoadRefusal | undefined {
    const reason = this.#overload.refusalOf(work, this.#parts.inFlight());
    if (reason === undefined) return undefined;
    this.#parts.onShed(reason);
    const retryAfterSeconds = RETRY_SECONDS[reason];
    const message =
      `${WHY[reason]}, and has not begun this one. Nothing was sent. ` +
      `Wait ${retryAfterSeconds} s or more before you try again, and send fewer requests at once`;
    const data = { retryAfterMs: retryAfterSeconds * 1_000, reason };
    return { error: new GatewayError('overloaded', { message, data }), retryAfterSeconds };
  }

  #onTurn(): void {
    const nowMs = performance.now();
    const elapsedMs = nowMs - this.#lastMs;
    this.#lastMs = nowMs;
    const { settings, inFlight } = this.#parts;
    const { loopDelayMs } = settings().overload;
    const boundMs = loopDelayMs === 'off' ? Infinity : loopDelayMs;
    this.#overload.onTurn(Math.max(0, elapsedMs - TURN_MS), elapsedMs, inFlight(), boundMs);
    if (++this.#turns % TURNS_PER_MEMORY === 0) this.#onMemory();
    this.#report();
  }

  #onMemory(): void {
    const { settings, dropCaches, closeReaders } = this.#parts;
    this.#memory = this.#meter.usedShare(settings().overload.memory);
    this.#overload.onMemory(this.#memory);
    if (this.#overload.mustDropCaches) dropCaches();
    if (this.#overload.mustCloseReaders) closeReaders();
  }

  /** Logs that refusals begin or end. */
  #report(): void {
    const { reasons, delayMs } = this.#overload;
    const isHigh = reasons.length > 0;
    if (isHigh === this.#isHigh) return;
    this.#isHigh = isHigh;
    const { log, inFlight } = this.#parts;
    if (!isHigh) return log.info('new requests are accepted again');
    const [delay, memory] = [Math.round(delayMs), Math.round(this.#memory * 100) / 100];
    log.warn({ reasons, delayMs: delay, memory, inFlight: inFlight() }, 'overloaded: new requests are refused');
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#meter[Symbol.dispose]();
  }
}

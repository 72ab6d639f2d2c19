import { resultUnlessAborted } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { FairSlots } from '../../fair-slots.ts';
import type { Cancellable } from '../exchange/external-decisions.ts';
import { ACKNOWLEDGE_MS } from './remote-listens.ts';

/** Questions about one stream at the same time, so that its many parts do not use up all turns at once. */
const AT_ONCE = 8;
const SLOTS = { slots: AT_ONCE, slotsPerOwner: AT_ONCE, waiting: Infinity, waitingPerOwner: Infinity };

/**
 * The time for all questions about a stream that another process has passed on. That one waits not much longer for the acknowledgement, and what is
 * decided until then is better than nothing.
 */
const PASSED_ON_MS = ACKNOWLEDGE_MS - 1_000;

/** The questions to a decision point about the parts of one stream. They end when the stream is closed. */
export class PartQuestions implements Cancellable {
  readonly #slots = new FairSlots(SLOTS);
  readonly #closed = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;

  /** @param passedOnMs the time when another process has passed the stream on; undefined if none has. */
  constructor(passedOnMs: number | undefined) {
    if (passedOnMs === undefined) return;
    this.#timer = setTimeout(() => this.#closed.abort(), passedOnMs + PASSED_ON_MS - performance.now());
  }

  async inTurn<T>(ask: () => Promise<T>): Promise<T> {
    const asked = await this.#slots.run('', async () => ({ answer: await ask() }), this.#closed.signal);
    if (asked === undefined) throw closed();
    return asked.answer;
  }

  unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    return resultUnlessAborted(wanted, this.#closed.signal, closed);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#closed.abort();
  }
}

function closed(): GatewayError {
  return new GatewayError('cancelled', { executed: 'no' });
}

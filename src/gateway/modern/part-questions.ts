import { resultUnlessAborted } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { FairSlots } from '../../fair-slots.ts';
import type { Cancellable } from '../exchange/external-decisions.ts';

/** Questions about one stream at the same time, so that its many parts do not use up all turns at once. */
const AT_ONCE = 8;
const SLOTS = { slots: AT_ONCE, slotsPerOwner: AT_ONCE, waiting: Infinity, waitingPerOwner: Infinity };

/** The questions to a decision point about the parts of one stream. They end when the stream is closed. */
export class PartQuestions implements Cancellable {
  /** Undefined before the first question. */
  #slots: FairSlots | undefined;
  readonly #closed = new AbortController();

  async inTurn<T>(ask: () => Promise<T>): Promise<T> {
    this.#slots ??= new FairSlots(SLOTS);
    const asked = await this.#slots.run('', async () => ({ answer: await ask() }), this.#closed.signal);
    if (asked === undefined) throw closed();
    return asked.answer;
  }

  unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    return resultUnlessAborted(wanted, this.#closed.signal, closed);
  }

  close(): void {
    this.#closed.abort();
  }
}

function closed(): GatewayError {
  return new GatewayError('cancelled', { executed: 'no' });
}

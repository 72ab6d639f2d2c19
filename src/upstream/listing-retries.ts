import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_TIMER_MS } from '../deadline.ts';
import type { Era } from '../protocol/revisions.ts';
import { retryUntilDone } from './lifecycle/retry-until-done.ts';
import { type ClientFeatures, NO_FEATURES } from './link/link.ts';

/** Kinds of clients whose listings are repeated. Others get the lists for all clients. */
const MAX_KINDS = 8;

export interface ListingRetriesParts {
  /** Lists the upstream. Adds a failure to the retries again. */
  refresh(era: Era, features: ClientFeatures): Promise<void>;
  /** Returns the shortest pause before the next attempt, in milliseconds. */
  waitMs(era: Era): number;
  readonly signal: AbortSignal;
}

/** Repeats the failed listings of one upstream until they succeed, without a request of a client. */
export class ListingRetries {
  readonly #parts: ListingRetriesParts;
  /** By the era of clients, then by capability key. */
  readonly #failed = new Map<Era, Map<string, ClientFeatures>>();

  constructor(parts: ListingRetriesParts) {
    this.#parts = parts;
  }

  add(era: Era, features: ClientFeatures): void {
    const known = this.#failed.get(era);
    const failed = known ?? new Map<string, ClientFeatures>();
    const isFull = failed.size >= MAX_KINDS && !failed.has(features.capabilityKey);
    const { clientCapabilities, capabilityKey } = isFull ? NO_FEATURES : features;
    failed.set(capabilityKey, { clientCapabilities, capabilityKey });
    if (known !== undefined) return;
    this.#failed.set(era, failed);
    void retryUntilDone(
      () => this.#listFailed(era, failed),
      () => this.#parts.waitMs(era),
      this.#parts.signal,
    );
  }

  /** Forgets a failure, as lists were read since. */
  remove(era: Era, { capabilityKey }: ClientFeatures): void {
    this.#failed.get(era)?.delete(capabilityKey);
  }

  /** Lists for one kind of clients after another. One that fails comes last at the next attempt. @throws {GatewayError} if one fails. */
  async #listFailed(era: Era, failed: Map<string, ClientFeatures>): Promise<void> {
    await this.#awaitPause(era);
    for (const [capabilityKey, features] of failed) {
      failed.delete(capabilityKey);
      await this.#parts.refresh(era, features);
    }
    this.#failed.delete(era);
  }

  /** Failed starts for clients may have prolonged the pause meanwhile. A listing within it would leave the upstream degraded, and end the retries. */
  async #awaitPause(era: Era): Promise<void> {
    const { signal } = this.#parts;
    for (let ms = this.#parts.waitMs(era); ms > 0 && !signal.aborted; ms = this.#parts.waitMs(era))
      await sleep(Math.min(ms, MAX_TIMER_MS), undefined, { signal, ref: false }).catch(() => undefined);
  }
}

import { hash } from 'node:crypto';
import { resultWithin } from '../../deadline.ts';
import { detach, KeptMap, KeptSet, type KeptText } from '../../json/kept-text.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { getOrMake } from '../../map-entries.ts';
import { EVERYBODY } from '../../upstream/connection-key.ts';

/** Returns a key of constant length: the ids are texts of upstreams, and may be long. */
function keyOf(upstream: string, audience: string, elicitationId: string): KeptText {
  return detach(hash('sha256', JSON.stringify([upstream, audience, elicitationId]), 'base64'));
}

/**
 * The URL elicitations that upstreams have reported as complete, and the calls that wait for such reports. The processes of an upstream may choose
 * the same id, so the report of one that serves a principal is for this principal alone.
 */
export class UrlElicitations {
  readonly #waiting = new KeptMap<Set<() => void>>();
  /** Completed elicitations of each upstream, the latest last: a report may come before the wait. */
  readonly #done = new Map<string, KeptSet>();
  readonly #onLimit: (limit: LimitName) => void;

  /** @param onLimit runs when the oldest completed elicitation of an upstream is removed. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /**
   * Records a completed elicitation, and ends the waits for it.
   *
   * @param audience the principal that the connection serves, or {@link EVERYBODY}.
   */
  complete(upstream: string, audience: string, elicitationId: string): void {
    const key = keyOf(upstream, audience, elicitationId);
    const done = getOrMake(this.#done, upstream, () => new KeptSet());
    done.add(key);
    const [oldest] = done;
    if (done.size > LIMITS.completedElicitationsPerUpstream && oldest !== undefined) {
      this.#onLimit('completedElicitationsPerUpstream');
      done.delete(oldest);
    }
    for (const wake of this.#waiting.get(key) ?? []) wake();
  }

  /** Resolves when all of these elicitations of a principal are complete, or after `limitMs`. */
  async wait(upstream: string, principal: string, elicitationIds: readonly string[], limitMs: number): Promise<void> {
    const done = this.#done.get(upstream);
    const keysOf = (id: string) => [EVERYBODY, principal].map((audience) => keyOf(upstream, audience, id));
    const remaining = new Set(elicitationIds.filter((id) => !keysOf(id).some((key) => done?.has(key) === true)));
    if (remaining.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const wakes = [...remaining].flatMap((id) => {
      const wake = () => {
        remaining.delete(id);
        if (remaining.size === 0) resolve();
      };
      return keysOf(id).map((key) => {
        getOrMake(this.#waiting, key, () => new Set()).add(wake);
        return [key, wake] as const;
      });
    });
    await resultWithin(promise, limitMs);
    for (const [key, wake] of wakes) {
      const waiting = this.#waiting.get(key);
      waiting?.delete(wake);
      if (waiting?.size === 0) this.#waiting.delete(key);
    }
  }
}

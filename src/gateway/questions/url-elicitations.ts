import { detach, KeptMap, KeptSet } from '../../json/kept-text.ts';

/** The URL elicitations that upstreams have reported as complete, and the calls that wait for such reports. */
export class UrlElicitations {
  readonly #waiting = new KeptMap<Set<() => void>>();
  /** Completed elicitations, the latest last: a report may come before the wait. */
  readonly #done = new KeptSet();

  /** Records a completed elicitation, and ends the waits for it. */
  complete(upstream: string, elicitationId: string): void {
    const key = detach(`${upstream} ${elicitationId}`);
    this.#done.add(key);
    const [oldest] = this.#done;
    if (this.#done.size > MAX_DONE && oldest !== undefined) this.#done.delete(oldest);
    for (const wake of this.#waiting.get(key) ?? []) wake();
  }

  /** Resolves when all of these elicitations are complete, or after `limitMs`. */
  async wait(upstream: string, elicitationIds: readonly string[], limitMs: number): Promise<void> {
    const keys = elicitationIds.map((id) => detach(`${upstream} ${id}`)).filter((key) => !this.#done.has(key));
    if (keys.length === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, limitMs);
    const remaining = new Set(keys);
    const wakes = keys.map((key) => {
      const wake = () => {
        remaining.delete(key);
        if (remaining.size === 0) resolve();
      };
      const waiting = this.#waiting.get(key) ?? new Set();
      this.#waiting.set(key, waiting.add(wake));
      return [key, wake] as const;
    });
    await promise;
    clearTimeout(timer);
    for (const [key, wake] of wakes) {
      const waiting = this.#waiting.get(key);
      waiting?.delete(wake);
      if (waiting?.size === 0) this.#waiting.delete(key);
    }
  }
}

/** Completed elicitations that are kept. */
const MAX_DONE = 10_000;

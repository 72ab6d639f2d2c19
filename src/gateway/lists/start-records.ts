import type { Logger } from 'pino';
import type { OfferStore, UpstreamKey } from '../../store/offer-store.ts';

/**
 * Remembers, over restarts, the upstreams that could not be listed when they were last asked, so that no client waits for
 * the same one at every start.
 */
export class StartRecords {
  readonly #store: OfferStore;
  readonly #log: Logger;
  readonly #keys: ReadonlyMap<string, UpstreamKey>;
  readonly #failed = new Set<string>();
  #writing: Promise<void> = Promise.resolve();

  constructor(keys: Iterable<UpstreamKey>, store: OfferStore, log: Logger) {
    this.#keys = new Map([...keys].map((key) => [key.upstream, key]));
    this.#store = store;
    this.#log = log;
  }

  async restore(): Promise<void> {
    for (const [id, key] of this.#keys) if (await this.#store.hasFailed(key)) this.#failed.add(id);
  }

  /** Whether the upstream failed, or kept a client waiting in vain, when it was last listed. */
  hasFailed(upstream: string): boolean {
    return this.#failed.has(upstream);
  }

  record(upstream: string, hasFailed: boolean): void {
    const key = this.#keys.get(upstream);
    if (key === undefined || hasFailed === this.#failed.has(upstream)) return;
    if (hasFailed) this.#failed.add(upstream);
    else this.#failed.delete(upstream);
    this.#writing = this.#writing
      .then(() => this.#store.setFailed(key, hasFailed))
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'result of a start not saved'));
  }

  /** Resolves when everything is on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }
}

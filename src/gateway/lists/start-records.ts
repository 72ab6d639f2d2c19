import type { Logger } from 'pino';
import type { OfferStore, UpstreamKey } from '../../store/offer-store.ts';

/**
 * Remembers, over restarts, how the last listing of each upstream went: no client waits at every start for one that could not
 * be listed, and no process is started for lists that were read a short time ago.
 */
export class StartRecords {
  readonly #store: OfferStore;
  readonly #log: Logger;
  readonly #keys: ReadonlyMap<string, UpstreamKey>;
  readonly #failed = new Set<string>();
  /** When upstreams were last listed; ms since 1970. */
  readonly #listedAtMs = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();

  constructor(keys: Iterable<UpstreamKey>, store: OfferStore, log: Logger) {
    this.#keys = new Map([...keys].map((key) => [key.upstream, key]));
    this.#store = store;
    this.#log = log;
  }

  async restore(): Promise<void> {
    for (const [id, key] of this.#keys) {
      if (await this.#store.hasFailed(key)) this.#failed.add(id);
      const listedAtMs = await this.#store.listedAtMs(key);
      if (listedAtMs !== undefined) this.#listedAtMs.set(id, listedAtMs);
    }
  }

  /** Whether the upstream failed, or kept a client waiting in vain, when it was last listed. */
  hasFailed(upstream: string): boolean {
    return this.#failed.has(upstream);
  }

  record(upstream: string, hasFailed: boolean): void {
    const key = this.#keys.get(upstream);
    if (key === undefined) return;
    if (!hasFailed) {
      this.#listedAtMs.set(upstream, Date.now());
      this.#write(upstream, () => this.#store.setListed(key));
    }
    if (hasFailed === this.#failed.has(upstream)) return;
    if (hasFailed) this.#failed.add(upstream);
    else this.#failed.delete(upstream);
    this.#write(upstream, () => this.#store.setFailed(key, hasFailed));
  }

  /** Ms since the upstream was last listed, by this process or an earlier one. A clock that was set back makes it old. */
  listedAgeMs(upstream: string): number {
    const ageMs = Date.now() - (this.#listedAtMs.get(upstream) ?? 0);
    return ageMs < 0 ? Infinity : ageMs;
  }

  #write(upstream: string, write: () => Promise<void>): void {
    this.#writing = this.#writing
      .then(write)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'result of a start not saved'));
  }

  /** Resolves when everything is on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }
}

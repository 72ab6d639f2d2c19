import type { Logger } from 'pino';
import type { OfferStore, UpstreamKey } from '../../store/offer-store.ts';

/**
 * Keeps the outcome of the last listing of each upstream across restarts. So clients do not wait at every start for an upstream that cannot
 * be listed. No process is started for lists that were read a short time ago.
 */
export class StartRecords {
  readonly #store: OfferStore;
  readonly #log: Logger;
  #keys: ReadonlyMap<string, UpstreamKey>;
  readonly #failed = new Set<string>();
  /** The time of the last listing; ms since 1970. */
  readonly #listedAtMs = new Map<string, number>();
  #writing: Promise<void> = Promise.resolve();

  constructor(keys: Iterable<UpstreamKey>, store: OfferStore, log: Logger) {
    this.#keys = new Map([...keys].map((key) => [key.upstream, key]));
    this.#store = store;
    this.#log = log;
  }

  /** Sets the keys of another config. Forgets the records of removed upstreams, and of those that are other servers now. */
  setKeys(keys: Iterable<UpstreamKey>): void {
    const next = new Map([...keys].map((key) => [key.upstream, key]));
    for (const [id, { target }] of this.#keys) {
      if (next.get(id)?.target === target) continue;
      this.#failed.delete(id);
      this.#listedAtMs.delete(id);
    }
    this.#keys = next;
  }

  /** Reads the records of these upstreams from the store. */
  async restore(upstreams: Iterable<string> = this.#keys.keys()): Promise<void> {
    for (const id of upstreams) {
      const key = this.#keys.get(id);
      if (key === undefined) continue;
      const [hasFailed, listedAtMs] = [await this.#store.hasFailed(key), await this.#store.listedAtMs(key)];
      // The config has changed meanwhile.
      if (this.#keys.get(id)?.target !== key.target) continue;
      if (hasFailed) this.#failed.add(id);
      if (listedAtMs !== undefined && !this.#listedAtMs.has(id)) this.#listedAtMs.set(id, listedAtMs);
    }
  }

  /** Returns whether the last listing of the upstream failed, or took too long for a client that waited. */
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

  /** Returns the ms since the last listing, also by an earlier process; Infinity if the clock was set back. */
  listedAgeMs(upstream: string): number {
    const ageMs = Date.now() - (this.#listedAtMs.get(upstream) ?? 0);
    return ageMs < 0 ? Infinity : ageMs;
  }

  #write(upstream: string, write: () => Promise<void>): void {
    this.#writing = this.#writing
      .then(write)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'result of a start not saved'));
  }

  /** Resolves when all records are on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }
}

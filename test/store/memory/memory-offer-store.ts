import type { OfferStore, StoredOfferKey, UpstreamKey } from '../../../src/store/offer-store.ts';

function nameOf({ upstream, target, era, capabilityKey, audience }: StoredOfferKey): string {
  return JSON.stringify([upstream, target, era, capabilityKey, audience]);
}

/** Stores lists in memory. */
export class MemoryOfferStore implements OfferStore {
  readonly #texts = new Map<string, string>();
  readonly #failed = new Set<string>();
  readonly #listedAtMs = new Map<string, number>();

  async read(key: StoredOfferKey): Promise<string | undefined> {
    return this.#texts.get(nameOf(key));
  }

  async write(key: StoredOfferKey, text: string): Promise<void> {
    this.#texts.set(nameOf(key), text);
  }

  async remove(key: StoredOfferKey): Promise<void> {
    this.#texts.delete(nameOf(key));
  }

  async hasFailed({ upstream, target }: UpstreamKey): Promise<boolean> {
    return this.#failed.has(JSON.stringify([upstream, target]));
  }

  async setFailed({ upstream, target }: UpstreamKey, hasFailed: boolean): Promise<void> {
    const name = JSON.stringify([upstream, target]);
    if (hasFailed) this.#failed.add(name);
    else this.#failed.delete(name);
  }

  async listedAtMs({ upstream, target }: UpstreamKey): Promise<number | undefined> {
    return this.#listedAtMs.get(JSON.stringify([upstream, target]));
  }

  async setListed({ upstream, target }: UpstreamKey): Promise<void> {
    this.#listedAtMs.set(JSON.stringify([upstream, target]), Date.now());
  }
}

import type { OfferKey, OfferStore } from '../offer-store.ts';

function nameOf({ upstream, target, era, capabilityKey }: OfferKey): string {
  return JSON.stringify([upstream, target, era, capabilityKey]);
}

/** Keeps lists in memory, as long as the process lives. */
export class MemoryOfferStore implements OfferStore {
  readonly #texts = new Map<string, string>();

  async read(key: OfferKey): Promise<string | undefined> {
    return this.#texts.get(nameOf(key));
  }

  async write(key: OfferKey, text: string): Promise<void> {
    this.#texts.set(nameOf(key), text);
  }

  async remove(key: OfferKey): Promise<void> {
    this.#texts.delete(nameOf(key));
  }
}

import type { OfferListener, OfferStore, StoredOfferKey, UpstreamKey } from '../offer-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';

const METHODS = STORES.offers;

/** The offer store of the parent. */
export class PipedOfferStore implements OfferStore {
  readonly #calls: PipeCalls;

  constructor(calls: PipeCalls) {
    this.#calls = calls;
  }

  async read(key: StoredOfferKey): Promise<string | undefined> {
    // The caller lists the upstream again.
    return await this.#calls.call(METHODS.read, key).catch(() => undefined);
  }

  async write(key: StoredOfferKey, text: string): Promise<void> {
    await this.#calls.call(METHODS.write, { key, text });
  }

  async remove(key: StoredOfferKey): Promise<void> {
    await this.#calls.call(METHODS.remove, key);
  }

  async watch(listener: OfferListener): Promise<void> {
    this.#calls.serve(STORE_NOTICES.offerWritten, async (key) => listener.onWritten(key));
  }

  async hasFailed(key: UpstreamKey): Promise<boolean> {
    return await this.#calls.call(METHODS.hasFailed, key);
  }

  async setFailed(key: UpstreamKey, hasFailed: boolean): Promise<void> {
    await this.#calls.call(METHODS.setFailed, { key, hasFailed });
  }

  async listedAtMs(key: UpstreamKey): Promise<number | undefined> {
    return await this.#calls.call(METHODS.listedAtMs, key);
  }

  async setListed(key: UpstreamKey): Promise<void> {
    await this.#calls.call(METHODS.setListed, key);
  }
}

import { freshKey, type KeyStore, type KeyRecord, withFreshKey } from '../key-store.ts';

/** Keeps keys in memory: what they seal opens in this process alone. */
export class MemoryKeyStore implements KeyStore {
  #keys: readonly KeyRecord[] = [freshKey(Date.now())];

  async read(): Promise<readonly KeyRecord[]> {
    return this.#keys;
  }

  async add(nowMs: number, graceMs: number): Promise<void> {
    this.#keys = withFreshKey(this.#keys, nowMs, graceMs);
  }
}

import { freshKey, type KeyStore, type KeyRecord, withFreshKey } from '../key-store.ts';

/** Stores keys in memory. Handles sealed with them are valid in this process only. */
export class MemoryKeyStore implements KeyStore {
  #keys: readonly KeyRecord[] = [freshKey(Date.now())];

  async read(): Promise<readonly KeyRecord[]> {
    return this.#keys;
  }

  async add(nowMs: number, graceMs: number): Promise<void> {
    this.#keys = withFreshKey(this.#keys, nowMs, graceMs);
  }
}

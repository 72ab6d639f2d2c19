import { hkdfSync } from 'node:crypto';
import type { KeyRecord } from '../store/key-store.ts';

/** A key for connections between replicas, with its public id. */
export interface InternalKey {
  readonly id: string;
  readonly key: Buffer;
}

/** The keys for connections between replicas, which are made from the ring that seals handles. Both sides prove that they have the ring. */
export class InternalKeys {
  #keys: ReadonlyMap<string, { readonly key: Buffer; readonly untilMs: number }> = new Map();
  #newest: InternalKey | undefined;
  /** Called for a connection with a key that one side does not know, or that has ended. The ring may have a newer state. */
  onUnknown: () => void = () => undefined;

  /** Takes over another state of the ring. Returns false if it has no key in common with the one before. */
  update(records: readonly KeyRecord[]): boolean {
    const before = this.#keys;
    this.#keys = new Map(
      records.map(({ kid, key, until }) => [kid, { key: derive(key), untilMs: until ?? Infinity }] as const),
    );
    const newest = records.at(-1);
    const key = this.#keys.get(newest?.kid ?? '')?.key;
    this.#newest = newest === undefined || key === undefined ? undefined : { id: newest.kid, key };
    return before.size === 0 || [...before.keys()].some((id) => this.#keys.has(id));
  }

  /** The key for new connections. @throws {Error} if there is no ring yet. */
  get newest(): InternalKey {
    if (this.#newest === undefined) throw new Error('the ring of keys was not read');
    return this.#newest;
  }

  /**
   * Returns the keys to try for a new connection, the newest one and that before it. The other replica may not have read the newest yet.
   */
  toConnect(nowMs: number): readonly InternalKey[] {
    const { newest } = this;
    const others = [...this.#keys].filter(([id, { untilMs }]) => id !== newest.id && nowMs < untilMs);
    return [newest, ...others.slice(-1).map(([id, { key }]) => ({ id, key }))];
  }

  /** Returns the key of this id; undefined if it is unknown or has ended. */
  find(id: string, nowMs: number): Buffer | undefined {
    const found = this.#keys.get(id);
    return found === undefined || nowMs >= found.untilMs ? undefined : found.key;
  }
}

function derive(key: string): Buffer {
  return Buffer.from(hkdfSync('sha256', Buffer.from(key, 'base64url'), '', 'linkspan replicas v1', 32));
}

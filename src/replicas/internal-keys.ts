import { hkdfSync } from 'node:crypto';
import type { KeyRecord } from '../store/key-store.ts';

/** A key for connections between replicas, with its public id. */
export interface InternalKey {
  readonly id: string;
  readonly key: Buffer;
  /** Ms since the epoch. It opens no connection afterwards. */
  readonly untilMs: number;
}

/** The keys for connections between replicas, which are made from the ring that seals handles. Both sides prove that they have the ring. */
export class InternalKeys {
  /** The newest one at the end. */
  #keys: readonly InternalKey[] = [];
  /** Called for a connection with a key that one side does not know, or that has ended. The ring may have a newer state. */
  onUnknown: () => void = () => undefined;

  /** Takes over another state of the ring. Returns false if it has no key in common with the one before. */
  update(records: readonly KeyRecord[]): boolean {
    const before = this.#keys;
    this.#keys = records.map(({ kid, key, until = Infinity }) => ({ id: kid, key: derive(key), untilMs: until }));
    return before.length === 0 || before.some(({ id }) => this.#keys.some((other) => other.id === id));
  }

  /** The key for new connections. @throws {Error} if there is no ring yet. */
  get newest(): InternalKey {
    const newest = this.#keys.at(-1);
    if (newest === undefined) throw new Error('the ring of keys was not read');
    return newest;
  }

  /**
   * Returns the keys to try for a new connection, the newest one and that before it. The other replica may not have read the newest yet.
   */
  toConnect(nowMs: number): readonly InternalKey[] {
    const { newest } = this;
    const before = this.#keys.findLast((key) => key !== newest && nowMs < key.untilMs);
    return before === undefined ? [newest] : [newest, before];
  }

  /** Returns the key of this id; undefined if it is unknown or has ended. */
  find(id: string, nowMs: number): Buffer | undefined {
    return this.#keys.find((key) => key.id === id && nowMs < key.untilMs)?.key;
  }
}

function derive(key: string): Buffer {
  return Buffer.from(hkdfSync('sha256', Buffer.from(key, 'base64url'), '', 'linkspan replicas v1', 32));
}

import { type LimitName, LIMITS } from '../../limits.ts';

/** A character of a text takes up to two bytes. */
const CHAR_BYTES = 2;

interface Snapshot {
  readonly items: readonly string[];
  readonly bytes: number;
}

/** The items of lists that are longer than a page, for cursors whose list has changed since. */
export class ListSnapshots {
  /** The most recently used one last. */
  readonly #snapshots = new Map<string, Snapshot>();
  readonly #onLimit: (limit: LimitName) => void;
  #bytes = 0;

  /** @param onLimit runs when the least recently used list is removed, or one is too large to be kept. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  get(key: string): readonly string[] | undefined {
    return this.#snapshots.get(key)?.items;
  }

  keep(key: string, items: readonly string[]): void {
    const known = this.#snapshots.get(key);
    const snapshot = known?.items === items ? known : { items, bytes: bytesOf(items) };
    this.#remove(key);
    this.#snapshots.set(key, snapshot);
    this.#bytes += snapshot.bytes;
    for (const oldest of this.#snapshots.keys()) {
      const isTooMany = this.#snapshots.size > LIMITS.listSnapshots;
      if (!isTooMany && this.#bytes <= LIMITS.listSnapshotsBytes) return;
      this.#onLimit(isTooMany ? 'listSnapshots' : 'listSnapshotsBytes');
      this.#remove(oldest);
    }
  }

  #remove(key: string): void {
    this.#bytes -= this.#snapshots.get(key)?.bytes ?? 0;
    this.#snapshots.delete(key);
  }
}

function bytesOf(items: readonly string[]): number {
  return items.reduce((sum, item) => sum + CHAR_BYTES * item.length, 0);
}

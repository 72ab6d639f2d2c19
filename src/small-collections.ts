/**
 * A map and a set for entries that are added and removed with every request. Both keep insertion order and search
 * linearly, the latest entry first, so they suit the few requests that are in flight at once.
 *
 * V8's own Map and Set replace their table after enough insertions and removals, and the old table keeps pointing at the new one. Once one
 * table is in the old generation, all later tables stay alive until the next full collection. So does every request that they ever held
 * (`docs/decisions/0011-array-collections.md`).
 */

function indexOf<T>(items: readonly T[], item: T): number {
  let at = items.length - 1;
  while (at >= 0 && items[at] !== item) at--;
  return at;
}

/**
 * With fewer items behind the removed one, they are moved one by one: `splice` allocates an array for the removed
 * items.
 */
const SPLICE_THRESHOLD = 64;

function removeAt(items: unknown[], at: number): void {
  const last = items.length - 1;
  if (last - at >= SPLICE_THRESHOLD) {
    items.splice(at, 1);
    return;
  }
  for (let to = at; to < last; to++) items[to] = items[to + 1];
  // Setting the length would release the memory of the array, and the next request would allocate it again.
  items.pop();
}

export class ArraySet<T> {
  #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** Adds an item, which must not be in the set yet. */
  add(item: T): void {
    this.#items.push(item);
  }

  delete(item: T): boolean {
    const at = indexOf(this.#items, item);
    if (at < 0) return false;
    removeAt(this.#items, at);
    return true;
  }

  clear(): void {
    this.#items = [];
  }

  some(holds: (item: T) => boolean): boolean {
    return this.#items.some(holds);
  }

  /** Returns a snapshot, which later changes do not affect. */
  [Symbol.iterator](): Iterator<T> {
    return this.#items.slice()[Symbol.iterator]();
  }
}

export class ArrayMap<K, V> {
  #keys: K[] = [];
  #values: V[] = [];

  get size(): number {
    return this.#keys.length;
  }

  has(key: K): boolean {
    return indexOf(this.#keys, key) >= 0;
  }

  get(key: K): V | undefined {
    const at = indexOf(this.#keys, key);
    return at < 0 ? undefined : this.#values[at];
  }

  set(key: K, value: V): void {
    const at = indexOf(this.#keys, key);
    if (at >= 0) {
      this.#values[at] = value;
      return;
    }
    this.#keys.push(key);
    this.#values.push(value);
  }

  delete(key: K): boolean {
    const at = indexOf(this.#keys, key);
    if (at < 0) return false;
    removeAt(this.#keys, at);
    removeAt(this.#values, at);
    return true;
  }

  clear(): void {
    this.#keys = [];
    this.#values = [];
  }

  /** Returns a snapshot, which later changes do not affect. */
  keys(): readonly K[] {
    return this.#keys.slice();
  }

  values(): readonly V[] {
    return this.#values.slice();
  }
}

/**
 * A Map and a Set for what comes and goes with every request, in the order it came. They look through all they hold, the latest
 * first, so they are for the few that are under way at once.
 *
 * V8's own leave a trail: a table that has seen enough come and go is replaced, and keeps pointing at the next. Once one of them
 * has grown old, all later ones live until the next full collection, with every request they ever held
 * (`docs/decisions/0011-fleeting.md`).
 */

/** Where it stands, or -1. */
function placeOf<T>(items: readonly T[], item: T): number {
  let at = items.length - 1;
  while (at >= 0 && items[at] !== item) at--;
  return at;
}

/** With fewer than this behind it, they are moved one by one: `splice` makes an array of what it takes out. */
const FEW = 64;

function removeAt(items: unknown[], at: number): void {
  const last = items.length - 1;
  if (last - at >= FEW) {
    items.splice(at, 1);
    return;
  }
  for (let to = at; to < last; to++) items[to] = items[to + 1];
  items.length = last;
}

export class ArraySet<T> {
  #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** It must not be there yet. */
  add(item: T): void {
    this.#items.push(item);
  }

  delete(item: T): boolean {
    const at = placeOf(this.#items, item);
    if (at < 0) return false;
    removeAt(this.#items, at);
    return true;
  }

  clear(): void {
    this.#items = [];
  }

  /** All that are there now, whatever becomes of them meanwhile. */
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
    return placeOf(this.#keys, key) >= 0;
  }

  get(key: K): V | undefined {
    const at = placeOf(this.#keys, key);
    return at < 0 ? undefined : this.#values[at];
  }

  set(key: K, value: V): void {
    const at = placeOf(this.#keys, key);
    if (at >= 0) {
      this.#values[at] = value;
      return;
    }
    this.#keys.push(key);
    this.#values.push(value);
  }

  delete(key: K): boolean {
    const at = placeOf(this.#keys, key);
    if (at < 0) return false;
    removeAt(this.#keys, at);
    removeAt(this.#values, at);
    return true;
  }

  clear(): void {
    this.#keys = [];
    this.#values = [];
  }

  /** All that are there now, whatever becomes of them meanwhile. */
  keys(): readonly K[] {
    return this.#keys.slice();
  }

  values(): readonly V[] {
    return this.#values.slice();
  }
}

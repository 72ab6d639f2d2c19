/** Values that equal keys share as long as somebody holds them. Holds none of them itself. */
export class Shared<T extends object> {
  readonly #values = new Map<string, WeakRef<T>>();
  /** Entries at which those of collected values are removed. */
  #sweepAt = 64;

  /** Returns the value of the key, made if there is none. */
  get(key: string, make: () => T): T {
    const known = this.#values.get(key)?.deref();
    if (known !== undefined) return known;
    const value = make();
    this.#values.set(key, new WeakRef(value));
    if (this.#values.size >= this.#sweepAt) this.#sweep();
    return value;
  }

  #sweep(): void {
    for (const [key, value] of this.#values) if (value.deref() === undefined) this.#values.delete(key);
    this.#sweepAt = Math.max(64, 2 * this.#values.size);
  }
}

/**
 * Texts that outlive the message they come from. A substring retains the whole message in memory, so stored texts are copies. The
 * type {@link KeptText} lets the compiler check that: fields and keys of stored entries have it, and only {@link detach} makes it.
 */

/** A text that may be stored: it retains no other text in memory. */
export type KeptText = string & { readonly [kept]: true };
declare const kept: unique symbol;

function markKept(_text: string): asserts _text is KeptText {}

/** Returns a copy of a text that may be stored. */
export function detach(text: string): KeptText {
  // UTF-8 cannot encode lone surrogates, which JSON escapes can produce.
  const encoding = text.isWellFormed() ? 'utf8' : 'utf16le';
  const own = Buffer.from(text, encoding).toString(encoding);
  markKept(own);
  return own;
}

/** A `Map` for entries that outlive a message. Any text can be looked up; only kept texts can be keys. */
export class KeptMap<V> {
  readonly #values = new Map<string, V>();

  get size(): number {
    return this.#values.size;
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  get(key: string): V | undefined {
    return this.#values.get(key);
  }

  set(key: KeptText, value: V): void {
    this.#values.set(key, value);
  }

  delete(key: string): boolean {
    return this.#values.delete(key);
  }

  clear(): void {
    this.#values.clear();
  }

  keys(): MapIterator<string> {
    return this.#values.keys();
  }

  values(): MapIterator<V> {
    return this.#values.values();
  }

  [Symbol.iterator](): MapIterator<[key: string, value: V]> {
    return this.#values.entries();
  }
}

/** A `Set` of texts that outlive a message. Any text can be looked up; only kept texts can be members. */
export class KeptSet {
  readonly #texts = new Set<string>();

  get size(): number {
    return this.#texts.size;
  }

  has(text: string): boolean {
    return this.#texts.has(text);
  }

  add(text: KeptText): void {
    this.#texts.add(text);
  }

  delete(text: string): boolean {
    return this.#texts.delete(text);
  }

  [Symbol.iterator](): SetIterator<string> {
    return this.#texts.values();
  }
}

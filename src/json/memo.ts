/**
 * Caches of texts that peers repeat, and of values made from them. All caches are bounded, and none of them retains a
 * message.
 */

import { CLOSE_OBJECT, MAY_BE_BROKEN } from './scan.ts';

const MAX_TEXTS = 1_000;
const MAX_CHARS = 4_096;
const MAX_RECENT = 8;

/** A text with a progress token belongs to one request, and does not repeat. */
const PROGRESS_TOKEN = 'progressToken';

/** A text that may be stored: it retains no other text in memory. Only {@link detach} makes one. */
export type Kept = string & { readonly [kept]: true };
declare const kept: unique symbol;

function markKept(_text: string): asserts _text is Kept {}

/** Copies a text. A substring of a message retains the whole message in memory, and must not be stored. */
export function detach(text: string): Kept {
  const own = Buffer.from(text).toString();
  markKept(own);
  return own;
}

/** A `Map` for entries that outlive a request. Any text can be looked up; only detached texts can be keys. */
export class KeptMap<V> {
  readonly #values = new Map<string, V>();

  get size(): number {
    return this.#values.size;
  }

  get(key: string): V | undefined {
    return this.#values.get(key);
  }

  set(key: Kept, value: V): void {
    this.#values.set(key, value);
  }

  clear(): void {
    this.#values.clear();
  }
}

function isCacheable(text: string): boolean {
  return text.length <= MAX_CHARS && !text.includes(PROGRESS_TOKEN);
}

interface Entry<T> {
  readonly text: Kept;
  readonly value: T;
}

/**
 * Caches values made from texts. Long texts, and texts that belong to a single request, are not cached. `make` must use
 * the text that it gets, which is detached.
 */
export class TextCache<T> {
  readonly #entries = new KeptMap<Entry<T>>();
  /** The last entry used; the next look-up is mostly for the same text. */
  #last: Entry<T> | undefined;

  of(text: string, make: (text: string) => T): T {
    if (this.#last?.text === text) return this.#last.value;
    const known = this.#entries.get(text);
    if (known !== undefined) return (this.#last = known).value;
    if (!isCacheable(text)) return make(text);
    const own = detach(text);
    const entry = { text: own, value: make(own) };
    if (this.#entries.size >= MAX_TEXTS) this.#entries.clear();
    this.#entries.set(own, entry);
    this.#last = entry;
    return entry.value;
  }
}

/** The latest objects at one place of a message. An object that repeats need not be scanned again. */
export class RecentTexts {
  readonly #texts: Kept[] = [];

  /** Returns the known object that begins at `at`, or undefined. */
  at(text: string, at: number): string | undefined {
    for (const known of this.#texts) {
      const end = at + known.length;
      // Faster than startsWith. Comparing the last character first avoids most comparisons.
      if (text.charCodeAt(end - 1) === CLOSE_OBJECT && text.slice(at, end) === known) return known;
    }
    return undefined;
  }

  /** Adds well-formed JSON to the cache. Returns an equal text that may be stored. */
  keep(text: string): string {
    // A text that is not an object could be the beginning of a longer value.
    if (!text.startsWith('{') || !isCacheable(text) || MAY_BE_BROKEN.test(text)) return text;
    const own = detach(text);
    if (this.#texts.length === MAX_RECENT) this.#texts.pop();
    this.#texts.unshift(own);
    return own;
  }
}

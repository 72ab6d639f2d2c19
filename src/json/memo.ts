/**
 * Texts that outlive the message they came in, and caches of what is made of texts that peers send again and again. All of them
 * are bounded, and hold no message.
 */

import { CLOSE_OBJECT, MAY_BE_BROKEN } from './scan.ts';

const MAX_TEXTS = 1_000;
const MAX_CHARS = 4_096;
const MAX_RECENT = 8;

/** Marks a text as one request's own: it is not seen again. */
const PROGRESS_TOKEN = 'progressToken';

/** A text that may be stored: it holds on to nothing but itself. Only {@link detach} makes one. */
export type Kept = string & { readonly [kept]: true };
declare const kept: unique symbol;

function markKept(_text: string): asserts _text is Kept {}

/** Copies a text. What was cut from a message is a slice that holds on to all of it, and must not be stored. */
export function detach(text: string): Kept {
  const own = Buffer.from(text).toString();
  markKept(own);
  return own;
}

/** A `Map` by text for what outlives a request: it is asked by any text, and keeps only detached ones. */
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
 * Values made from texts, made once for each. A long text, or one that belongs to a single request, is not cached. `make` must
 * make the value from the text it is given, which is detached.
 */
export class TextCache<T> {
  readonly #entries = new KeptMap<Entry<T>>();
  /** Asked for last, and mostly asked for next. */
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

/** The objects that came last in one place of a message. One that comes again need not be scanned again. */
export class RecentTexts {
  readonly #texts: Kept[] = [];

  /** Returns the object that begins at `at`, if it is one of these. */
  at(text: string, at: number): string | undefined {
    for (const known of this.#texts) {
      const end = at + known.length;
      // Faster than startsWith; and mostly not even that has to be looked at.
      if (text.charCodeAt(end - 1) === CLOSE_OBJECT && text.slice(at, end) === known) return known;
    }
    return undefined;
  }

  /** Takes well-formed JSON, and returns the same text for others to hold. */
  keep(text: string): string {
    // Of what is no object, something longer may begin the same.
    if (!text.startsWith('{') || !isCacheable(text) || MAY_BE_BROKEN.test(text)) return text;
    const own = detach(text);
    if (this.#texts.length === MAX_RECENT) this.#texts.pop();
    this.#texts.unshift(own);
    return own;
  }
}

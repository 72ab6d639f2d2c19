/**
 * Caches of texts that peers repeat, and of values made from them: envelopes, headers, `_meta`. Without them a modern call costs a
 * third more (`docs/decisions/figures.md`).
 *
 * The contract: a value depends on its text alone. Each cache holds at most {@link MAX_TEXTS} texts of {@link MAX_CHARS}
 * characters, and is emptied when it is full. Keys are kept texts, so no cache retains a message.
 */

import { detach, KeptMap, type KeptText } from './kept-text.ts';
import { CLOSE_OBJECT, MAY_BE_BROKEN } from './scan.ts';

const MAX_TEXTS = 1_000;
const MAX_CHARS = 4_096;
const MAX_RECENT = 8;

/** A text with a progress token belongs to one request, and does not repeat. */
const PROGRESS_TOKEN = 'progressToken';

function isCacheable(text: string): boolean {
  return text.length <= MAX_CHARS && !text.includes(PROGRESS_TOKEN);
}

/**
 * Caches values made from texts. Long texts, and texts that belong to a single request, are not cached. `make` must use
 * the text that it gets, which is detached if the value is cached.
 */
export class TextCache<T extends string | object> {
  readonly #values = new KeptMap<T>();

  of(text: string, make: (text: string, isDetached: boolean) => T): T {
    const known = this.#values.get(text);
    if (known !== undefined) return known;
    if (!isCacheable(text)) return make(text, false);
    const own = detach(text);
    const value = make(own, true);
    if (this.#values.size >= MAX_TEXTS) this.#values.clear();
    this.#values.set(own, value);
    return value;
  }
}

/** The latest objects at one place of a message. An object that repeats need not be scanned again. */
export class RecentTexts {
  readonly #texts: KeptText[] = [];

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

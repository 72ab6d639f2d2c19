/** Texts that peers send again and again, and what is made of them. Bounded, and free of the messages they were cut from. */

import { CLOSE_OBJECT, MAY_BE_BROKEN } from './scan.ts';

const MAX_TEXTS = 1_000;
const MAX_CHARS = 4_096;
const MAX_RECENT = 8;

/** What a request alone says: it is not seen again. */
const OWN = 'progressToken';

function isKept(text: string): boolean {
  return text.length <= MAX_CHARS && !text.includes(OWN);
}

/** The same text by itself. What is cut from a message holds on to all of it, and is not to be kept. */
export function detach(text: string): string {
  return Buffer.from(text).toString();
}

interface Made<T> {
  readonly text: string;
  readonly value: T;
}

/**
 * What is made of such texts, made once. A long text, or one that names a single request, is not kept. Whatever makes it must make it
 * of the text it is given, which is by itself.
 */
export class TextCache<T> {
  readonly #made = new Map<string, Made<T>>();
  /** Asked for last, and mostly asked for next. */
  #last: Made<T> | undefined;

  of(text: string, make: (text: string) => T): T {
    if (this.#last?.text === text) return this.#last.value;
    const known = this.#made.get(text);
    if (known !== undefined) return (this.#last = known).value;
    if (!isKept(text)) return make(text);
    const own = detach(text);
    const made = { text: own, value: make(own) };
    if (this.#made.size >= MAX_TEXTS) this.#made.clear();
    this.#made.set(own, made);
    this.#last = made;
    return made.value;
  }
}

/** The objects that came last at one place of a message: seen again, they need not be looked through again. */
export class RecentTexts {
  readonly #texts: string[] = [];

  /** The object that begins there, if it is one of those. */
  at(text: string, at: number): string | undefined {
    for (const known of this.#texts) {
      const end = at + known.length;
      // Faster than startsWith; and mostly not even that has to be looked at.
      if (text.charCodeAt(end - 1) === CLOSE_OBJECT && text.slice(at, end) === known) return known;
    }
    return undefined;
  }

  /** Takes well-formed JSON, and gives it back for others to hold. */
  keep(text: string): string {
    // Of what is no object, something longer may begin the same.
    if (!text.startsWith('{') || !isKept(text) || MAY_BE_BROKEN.test(text)) return text;
    const own = detach(text);
    if (this.#texts.length === MAX_RECENT) this.#texts.pop();
    this.#texts.unshift(own);
    return own;
  }
}

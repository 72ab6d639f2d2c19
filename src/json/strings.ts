/** Checks the strings of JSON text: their escapes and control characters. Offsets are in UTF-16 units. */

import { JsonTextError } from './json-text-error.ts';

const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Characters of a string that are checked one by one before a search: most strings are short, and a search has a fixed cost. */
const STEPPED_CHARS = 12;

/** Number of escapes in the sample, and the distance up to which they are dense. Halves the time for 100 kB of code in a string. */
const SAMPLE_ESCAPES = 8;
const DENSE_CHARS = 40;

/** Returns whether escapes are so close together that a check string by string is faster than a search for each escape. */
export function hasDenseEscapes(text: string): boolean {
  const first = text.indexOf('\\');
  let at = first;
  for (let escapes = 0; at >= 0 && escapes < SAMPLE_ESCAPES; escapes++) at = text.indexOf('\\', at + 2);
  return at >= 0 && at - first < SAMPLE_ESCAPES * DENSE_CHARS;
}

/** The kind of escape, by the character code after the backslash; 0 for none. */
const [SIMPLE, UNICODE] = [1, 2];
const ESCAPES = new Uint8Array(128);
for (const char of '"\\/bfnrt') ESCAPES[char.charCodeAt(0)] = SIMPLE;
ESCAPES['u'.charCodeAt(0)] = UNICODE;

const HEX4 = /[0-9a-fA-F]{4}/y;

/** Checks every escape of a text. Backslashes outside of strings are found by the scan. @throws {JsonTextError} */
export function checkEscapes(text: string): void {
  for (let at = text.indexOf('\\'); at >= 0;) {
    const kind = ESCAPES[text.charCodeAt(at + 1)];
    if (kind === SIMPLE) {
      at += 2;
    } else {
      HEX4.lastIndex = at + 2;
      if (kind !== UNICODE || !HEX4.test(text)) throw new JsonTextError('bad escape in a string', at);
      at += 6;
    }
    if (text.charCodeAt(at) !== BACKSLASH) at = text.indexOf('\\', at);
  }
}

/**
 * Matches a piece of a string, with its escapes, up to the closing quote or the first invalid character. A piece has at most 64
 * escapes, so that a long string needs no deep stack.
 */
// oxlint-disable-next-line no-control-regex -- control characters end the piece
const STRING_PIECE = /[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*){0,64}/y;

/** Checks the string that starts at `at`, and returns the offset after its closing quote. @throws {JsonTextError} */
export function checkedStringEnd(text: string, at: number): number {
  let i = at + 1;
  for (const near = Math.min(i + STEPPED_CHARS, text.length); i < near; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) return i + 1;
    if (c === BACKSLASH || c < SPACE) break;
  }
  for (;;) {
    STRING_PIECE.lastIndex = i;
    STRING_PIECE.test(text);
    const end = STRING_PIECE.lastIndex;
    if (end >= text.length) throw new JsonTextError('unterminated string', at);
    const c = text.charCodeAt(end);
    if (c === QUOTE) return end + 1;
    if (c < SPACE) throw new JsonTextError('control character in a string', end);
    if (end === i) throw new JsonTextError('bad escape in a string', end);
    i = end;
  }
}

// oxlint-disable-next-line no-control-regex -- the expression searches for control characters
const CONTROL = /[\u0000-\u001f]/g;

/** Returns the offset of the first control character at or after `at`; `Infinity` if there is none. */
export function controlAfter(text: string, at: number): number {
  CONTROL.lastIndex = at;
  return CONTROL.test(text) ? CONTROL.lastIndex - 1 : Infinity;
}

const BLOCK_CHARS = 65_536;
const block = Buffer.from(new ArrayBuffer(BLOCK_CHARS));
const words = new Uint32Array(block.buffer);

/**
 * Returns whether a text may have a control character. Also returns true for characters such as U+010A, because it checks only
 * low bytes, four at once. This takes a third of the time of a regular expression.
 */
export function hasControl(text: string): boolean {
  for (let from = 0; from < text.length; from += BLOCK_CHARS) {
    const chars = block.write(from === 0 ? text : text.slice(from, from + BLOCK_CHARS), 'latin1');
    // Spaces fill the last word: they are not control characters.
    const whole = (chars + 3) & ~3;
    for (let at = chars; at < whole; at++) block[at] = SPACE;
    for (let at = 0; at < whole >> 2; at++) {
      const word = words[at] ?? 0;
      if ((word - 0x20202020) & ~word & 0x80808080) return true;
    }
  }
  return false;
}

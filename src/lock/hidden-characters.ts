import { escapesOf } from '../peer-text.ts';

/**
 * Characters that a person does not see in a text and a model reads. They are control characters, bidirectional controls, characters
 * without width, blank letters, Unicode tags and variation selectors of the supplement. Line breaks and tabs are not hidden, and neither
 * are joiners inside emoji or between letters of a script that needs them.
 *
 * @see https://www.unicode.org/reports/tr36/ (security), https://trojansource.codes
 */
const HIDDEN =
  /[\p{Cc}--[\n\r\t]]|[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb]|\u034f|[\u{e0000}-\u{e0fff}]|(?<=^|[\p{ASCII}\u200b-\u200d])[\u200c\u200d]/gv;

/** Kinds of hidden characters, for people. */
const KINDS: readonly (readonly [string, RegExp])[] = [
  ['tag', /[\u{e0000}-\u{e007f}]/u],
  ['bidirectional control', /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u],
  ['zero-width', /[\u200b-\u200d\u2060-\u2065\ufeff\u00ad\u180e]|\u034f/u],
  ['variation selector', /[\u180b-\u180d]|[\u{e0100}-\u{e01ef}]/u],
  ['control', /\p{Cc}/u],
];

/** Returns a text with its hidden characters as JSON escapes. For JSON text, the result is the same JSON. */
export function escapeHidden(text: string): string {
  return text.replaceAll(HIDDEN, escapesOf);
}

/** Returns the kinds of hidden characters in a text with their numbers, such as `3 zero-width`. Empty if there are none. */
export function hiddenCharacters(text: string): readonly string[] {
  const counts = new Map<string, number>();
  for (const [character] of text.matchAll(HIDDEN)) {
    const kind = KINDS.find(([, pattern]) => pattern.test(character))?.[0] ?? 'blank';
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return [...counts].map(([kind, count]) => `${count} ${kind}`);
}

/** Returns the hidden characters of a text, in order. */
export function hiddenSequence(text: string): string {
  return [...text.matchAll(HIDDEN)].map(([character]) => character).join('');
}

export function withoutHidden(text: string): string {
  return text.replaceAll(HIDDEN, '');
}

/**
 * Removes from titles and descriptions the characters that a person cannot see but a model or a terminal reads. They are escape sequences,
 * control characters, Unicode tags, and bidirectional controls without a partner. Joiners and direction marks are needed by languages, so
 * they stay.
 */

import { mapStrings } from './json-strings.ts';

const ESCAPE = '\u001b';

/** Matches a terminal's escape sequence, a control character or a Unicode tag. Line breaks and tabs stay. */
const HIDDEN = new RegExp(
  `(?:${ESCAPE}\\[|\u009b)[0-9;:?]*[ -\\/]*[@-~]|[\\p{Cc}--[\\n\\r\\t]]|[\\u{e0000}-\\u{e007f}]`,
  'gv',
);

const BIDI = /[\u202a-\u202e\u2066-\u2069\n]/;
const EMBEDDINGS = new Set(['\u202a', '\u202b', '\u202d', '\u202e']);
const ISOLATES = new Set(['\u2066', '\u2067', '\u2068']);
const POP_EMBEDDING = '\u202c';
const POP_ISOLATE = '\u2069';

/** Matches JSON text that may contain one of these characters, as it is or as an escape. */
const SUSPECT = /[\u007f-\u009f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]|\\[bf]|\\u(?:00[01789]|20[26]|db40)/iu;

/** Line breaks and tabs, which become one space in a title. */
const BREAKS = /[\n\r\t]+/g;
const BROKEN_LABEL = /"(?:title|name)"\s*:\s*"[^"]*\\[nrt]/;

/** Removes bidirectional controls that have no partner on their line. */
function removeUnpairedBidi(text: string): string {
  if (!BIDI.test(text)) return text;
  const chars = text.split('');
  const open: number[] = [];
  const remove = (at: number | undefined): void => {
    if (at !== undefined) chars[at] = '';
  };
  for (const [at, char] of [...chars].entries()) {
    if (EMBEDDINGS.has(char) || ISOLATES.has(char)) {
      open.push(at);
    } else if (char === POP_EMBEDDING) {
      if (EMBEDDINGS.has(chars[open.at(-1) ?? -1] ?? '')) open.pop();
      else remove(at);
    } else if (char === POP_ISOLATE) {
      const opener = open.findLastIndex((one) => ISOLATES.has(chars[one] ?? ''));
      if (opener < 0) remove(at);
      // The end of an isolate also ends the embeddings inside it.
      else for (const inner of open.splice(opener).slice(1)) remove(inner);
    } else if (char === '\n') {
      for (const unpaired of open.splice(0)) remove(unpaired);
    }
  }
  for (const unpaired of open) remove(unpaired);
  return chars.join('');
}

/** Returns a text without hidden characters, as the head of this file lists them. */
export function visibleText(text: string): string {
  return removeUnpairedBidi(text.replaceAll(HIDDEN, ''));
}

/** Returns a text without hidden characters, on one line. */
export function visibleLabel(text: string): string {
  return visibleText(text.replaceAll(BREAKS, ' '));
}

/** The members of an item, and of its schemas and arguments, that people and models read. */
const LABELS = new Set(['title']);
const TEXTS = new Set(['description']);

/**
 * Cleans the titles and descriptions in the JSON text of an item.
 *
 * @param labels further members of the item itself that clients show to people.
 * @returns the text, which is the same if nothing changes, and the number of strings that were changed.
 */
export function cleanItemText(
  json: string,
  labels: ReadonlySet<string>,
): { readonly json: string; readonly cleaned: number } {
  if (!SUSPECT.test(json) && !BROKEN_LABEL.test(json)) return { json, cleaned: 0 };
  let cleaned = 0;
  const after = mapStrings(json, (value, name, depth) => {
    const isLabel = LABELS.has(name) || (depth === 1 && labels.has(name));
    if (!isLabel && !TEXTS.has(name)) return value;
    const visible = isLabel ? visibleLabel(value) : visibleText(value);
    if (visible !== value) cleaned++;
    return visible;
  });
  return { json: after, cleaned };
}

/** Matches escapes; the third group is the second half of a surrogate pair without the first. */
const SURROGATES = /\\(?:u(d[89ab][0-9a-f]{2})(?:\\u(d[c-f][0-9a-f]{2}))?|u(d[c-f][0-9a-f]{2})|.)/gis;

/** Replaces lone surrogates in JSON text by U+FFFD. Python clients refuse a whole message that contains one. */
export function replaceLoneSurrogates(json: string): string {
  if (!/\\ud/i.test(json)) return json;
  return json.replaceAll(SURROGATES, (all: string, high?: string, low?: string, lone?: string) => {
    if (lone !== undefined) return '\\ufffd';
    return high !== undefined && low === undefined ? '\\ufffd' : all;
  });
}

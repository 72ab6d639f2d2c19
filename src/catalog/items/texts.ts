/**
 * Takes out of titles and descriptions the characters that a person cannot see but a model or a terminal reads: escape
 * sequences, control characters, Unicode tags, and bidirectional controls without a partner. Joiners and direction marks
 * belong to languages and stay.
 */

import { mapStrings } from './json-strings.ts';

const ESCAPE = '\u001b';

/** A terminal's escape sequence, a control character or a Unicode tag. Line breaks and tabs stay. */
const HIDDEN = new RegExp(
  `(?:${ESCAPE}\\[|\u009b)[0-9;:?]*[ -\\/]*[@-~]|[\\p{Cc}--[\\n\\r\\t]]|[\\u{e0000}-\\u{e007f}]`,
  'gv',
);

const BIDI = /[\u202a-\u202e\u2066-\u2069\n]/;
const EMBEDDINGS = new Set(['\u202a', '\u202b', '\u202d', '\u202e']);
const ISOLATES = new Set(['\u2066', '\u2067', '\u2068']);
const POP_EMBEDDING = '\u202c';
const POP_ISOLATE = '\u2069';

/** Whether JSON text may hold one of these characters, as it is or as an escape. */
const SUSPECT = /[\u007f-\u009f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]|\\[bf]|\\u(?:00[01789]|20[26]|db40)/iu;

/** A line break in a title, where one is no more than a blank. */
const BREAKS = /[\n\r\t]+/g;
const BROKEN_LABEL = /"(?:title|name)"\s*:\s*"[^"]*\\[nrt]/;

/** Removes bidirectional controls that have no partner in their line. */
function withoutUnpaired(text: string): string {
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
      // An embedding ends with the isolate around it.
      else for (const inner of open.splice(opener).slice(1)) remove(inner);
    } else if (char === '\n') {
      for (const unpaired of open.splice(0)) remove(unpaired);
    }
  }
  for (const unpaired of open) remove(unpaired);
  return chars.join('');
}

/** Returns a text without hidden characters; see the head of the file. */
export function visibleText(text: string): string {
  return withoutUnpaired(text.replaceAll(HIDDEN, ''));
}

/** The same for a text of one line. */
export function visibleLabel(text: string): string {
  return visibleText(text.replaceAll(BREAKS, ' '));
}

/** Members of an item, and of the schemas and arguments in it, that people and models read. */
const LABELS = new Set(['title']);
const TEXTS = new Set(['description']);

/**
 * Cleans the titles and descriptions in the JSON text of an item.
 *
 * @param labels further members of the item itself that are shown to people.
 * @returns the same text where there is nothing to clean, and how many texts were changed.
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

/** A surrogate escape whose other half is missing. */
const SURROGATES = /\\(?:u(d[89ab][0-9a-f]{2})(?:\\u(d[c-f][0-9a-f]{2}))?|u(d[c-f][0-9a-f]{2})|.)/gis;

/**
 * Replaces halves of surrogate pairs in JSON text by U+FFFD. Python clients refuse a whole message over one, wherever it
 * stands.
 */
export function withoutLoneSurrogates(json: string): string {
  if (!/\\ud/i.test(json)) return json;
  return json.replaceAll(SURROGATES, (all: string, high?: string, low?: string, lone?: string) => {
    if (lone !== undefined) return '\\ufffd';
    return high !== undefined && low === undefined ? '\\ufffd' : all;
  });
}

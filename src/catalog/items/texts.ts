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

const BIDI = /[\u202a-\u202e\u2066-\u2069]/;
const EMBEDDINGS = new Set([0x202a, 0x202b, 0x202d, 0x202e]);
const ISOLATES = new Set([0x2066, 0x2067, 0x2068]);
const POP_EMBEDDING = 0x202c;
const POP_ISOLATE = 0x2069;
const LINE_BREAK = 0x0a;

/** Matches JSON text that may contain one of these characters, as it is or as an escape. */
const SUSPECT = /[\u007f-\u009f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]|\\[bf]|\\u(?:00[01789]|20[26]|db40)/iu;

/** Line breaks and tabs, which become one space in a title. */
const BREAKS = /[\n\r\t]+/g;
const BROKEN_LABEL = /"(?:title|name)"\s*:\s*"[^"]*\\[nrt]/;

/** Removes bidirectional controls that have no partner on their line. */
function removeUnpairedBidi(text: string): string {
  if (!BIDI.test(text)) return text;
  /** 1 for each character to remove. */
  const unpaired = new Uint8Array(text.length);
  const removeAll = (positions: readonly number[]): void => {
    for (const at of positions) unpaired[at] = 1;
  };
  /** The positions of the controls that are open. */
  const open: number[] = [];
  /** The indexes of the isolates in `open`. */
  const isolates: number[] = [];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (EMBEDDINGS.has(code)) {
      open.push(at);
    } else if (ISOLATES.has(code)) {
      isolates.push(open.length);
      open.push(at);
    } else if (code === POP_EMBEDDING) {
      const isInIsolate = isolates.at(-1) === open.length - 1;
      if (isInIsolate || open.pop() === undefined) unpaired[at] = 1;
    } else if (code === POP_ISOLATE) {
      const opener = isolates.pop();
      if (opener === undefined) unpaired[at] = 1;
      // The end of an isolate also ends the embeddings inside it.
      else removeAll(open.splice(opener).slice(1));
    } else if (code === LINE_BREAK) {
      removeAll(open.splice(0));
      isolates.length = 0;
    }
  }
  removeAll(open);
  return withoutMarked(text, unpaired);
}

function withoutMarked(text: string, marked: Uint8Array): string {
  const kept: string[] = [];
  let from = 0;
  for (let at = marked.indexOf(1); at >= 0; at = marked.indexOf(1, from)) {
    kept.push(text.slice(from, at));
    from = at + 1;
  }
  return kept.join('') + text.slice(from);
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

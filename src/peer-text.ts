/**
 * Texts of peers for people: of clients, upstreams, headers, and config files of other programs. Each of them passes one of these functions
 * on its way to the log, to operators, to a trace or a terminal. So it is short there and hides nothing.
 */

/** The longest part of one text of a peer that is shown. */
export const SHOWN_CHARS = 200;

/** Matches characters that a person cannot see, or that reorder others: controls, bidi, zero-width, tags, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/u;
const EVERY_UNSEEN = new RegExp(UNSEEN.source, 'gu');
/** As {@link UNSEEN}, without line breaks and tabs. */
const HIDDEN = new RegExp(`(?![\\n\\t])${UNSEEN.source}`, 'gu');

/** Matches any character that may be unseen. Nearly every text has none, and this search is the fastest. */
const SUSPECT = /[^\n\t -~]/;
const LINE_BREAKS = /[\n\r\t]+/g;

/** Matches an escape or a surrogate pair at the end of a text whose second part was cut off. */
const HALF = /(?:\\(?:u[0-9a-f]{0,3})?|[\uD800-\uDBFF])$/;

export function hasUnseen(text: string): boolean {
  return UNSEEN.test(text);
}

/** Returns a text of a peer on one line of at most `maxChars` UTF-16 code units, with unseen characters as escapes. */
export function shownText(text: string, maxChars = SHOWN_CHARS): string {
  return cut(text.slice(0, maxChars + 1).replaceAll(EVERY_UNSEEN, escapesOf), maxChars);
}

/** As {@link shownText}, for a text of several lines, which stay. */
export function shownLines(text: string, maxChars: number): string {
  return cut(escapeUnseen(text.slice(0, maxChars + 1)), maxChars);
}

/** Returns a whole text on one line, with unseen characters as escapes, for a terminal. */
export function oneLine(text: string): string {
  return escapeUnseen(text.replaceAll(LINE_BREAKS, ' '));
}

/**
 * Returns a text with unseen characters as JSON escapes, but for line breaks and tabs. For JSON text, the result is the same JSON.
 */
export function escapeUnseen(text: string): string {
  return SUSPECT.test(text) ? text.replaceAll(HIDDEN, escapesOf) : text;
}

const SHORT_ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/** Returns a character as JSON escapes: two for a character of two UTF-16 code units. */
export function escapesOf(character: string): string {
  const short = SHORT_ESCAPES.get(character);
  if (short !== undefined) return short;
  return Array.from(
    { length: character.length },
    (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');
}

function cut(shown: string, maxChars: number): string {
  return shown.length <= maxChars ? shown : `${shown.slice(0, maxChars - 1).replace(HALF, '')}…`;
}

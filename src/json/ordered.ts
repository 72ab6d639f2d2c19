import { checkJson, CLIENT_BOUNDS, quoted } from './json.ts';
import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  scanner,
  skipColon,
  skipName,
  skipSpace,
  skipValue,
  unquote,
} from './scan.ts';

/**
 * Returns the text of a JSON value without spaces, and with the members of objects in the order of their names. Numbers and strings keep
 * their spelling. Reads the text once, however deep it is nested.
 *
 * @param raw JSON within the bounds of a client's message.
 * @throws {JsonTextError} if the text is not JSON, or an object in it names a member twice.
 */
export function orderedText(raw: string): string {
  checkJson(raw, CLIENT_BOUNDS);
  return orderedValue({ text: raw, at: skipSpace(raw, 0) });
}

/** Returns the text of an object with these members, in the order of their names. The values are JSON texts. */
export function objectText(members: readonly (readonly [name: string, value: string])[]): string {
  let text = '';
  // Unlike join(), `+=` does not copy the values.
  for (const [name, value] of members.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    text += `${text === '' ? '' : ','}${quoted(name)}:${value}`;
  }
  return `{${text}}`;
}

/** A place in well-formed JSON. */
interface Cursor {
  readonly text: string;
  at: number;
}

/** Returns the ordered text of the value at the cursor, and moves the cursor behind it. */
function orderedValue(cursor: Cursor): string {
  const { text, at } = cursor;
  const first = text.charCodeAt(at);
  if (first === OPEN_OBJECT) {
    const members: [name: string, value: string][] = [];
    cursor.at++;
    while (moveToNext(cursor, CLOSE_OBJECT)) members.push([readName(cursor), orderedValue(cursor)]);
    return objectText(members);
  }
  if (first === OPEN_ARRAY) {
    let items = '';
    cursor.at++;
    while (moveToNext(cursor, CLOSE_ARRAY)) items += `${items === '' ? '' : ','}${orderedValue(cursor)}`;
    return `[${items}]`;
  }
  scanner.values = 0;
  cursor.at = skipValue(text, at);
  return text.slice(at, cursor.at);
}

/** Moves the cursor to the next item or member. Returns false if the object or array ends, and moves the cursor behind it. */
function moveToNext(cursor: Cursor, closer: number): boolean {
  const { text } = cursor;
  const at = skipSpace(text, cursor.at);
  const next = text.charCodeAt(at);
  cursor.at = next === COMMA ? skipSpace(text, at + 1) : next === closer ? at + 1 : at;
  return next !== closer;
}

/** Returns the name of the member at the cursor, and moves the cursor to its value. */
function readName(cursor: Cursor): string {
  const { text, at } = cursor;
  const end = skipName(text, at);
  cursor.at = skipColon(text, end);
  return unquote(text.slice(at, end), at);
}

import { escapeUnseen } from '../peer-text.ts';
import type { AuditEvent } from './audit-event.ts';

/** The longest text of a member, and the longest one in a record that would be too large otherwise. */
const MAX_CHARS = 256;
const MAX_CHARS_IN_LARGE = 24;

/** Members with a text that a client or an upstream chooses. */
const OF_CLIENTS: ReadonlySet<string> = new Set([
  'client',
  'clientVersion',
  'method',
  'name',
  'upstreamName',
  'requestId',
]);

/** Members that are added when a record is written: its number, its time and its MAC. */
const ADDED_BYTES = 160;
/** A text of arguments takes up to this many times its length when it is quoted. */
const QUOTED_FACTOR = 2;

/** The only unseen character in JSON that takes one byte. */
const DELETE = '\u007F';
const MAX_UTF8_BYTES = 3;

/**
 * Returns the members of a record as JSON without braces. Long texts are cut, so that the record has at most `limitBytes`.
 *
 * @param time ISO 8601.
 * @param limitBytes at least 4 KiB.
 */
export function recordText(event: AuditEvent, time: string, limitBytes: number): string {
  const { argumentsText } = event;
  // Nearly every record has none, and a copy would cost as much as the text.
  const rest = argumentsText === undefined ? event : { ...event, argumentsText: undefined };
  const room = limitBytes - ADDED_BYTES;
  let text = membersText(rest, time, MAX_CHARS);
  // A client must not cut its own principal by long names.
  if (isLonger(text, room)) text = membersText(rest, time, MAX_CHARS, MAX_CHARS_IN_LARGE);
  if (isLonger(text, room)) text = membersText(rest, time, MAX_CHARS_IN_LARGE);
  if (argumentsText === undefined) return text;
  const left = room - Buffer.byteLength(text);
  const whole = `,"arguments":${escaped(argumentsText)}`;
  if (Buffer.byteLength(whole) <= left) return text + whole;
  const cut = argumentsText.slice(0, Math.max(0, Math.floor(left / QUOTED_FACTOR) - ADDED_BYTES));
  const part = `,"argumentsCut":${escaped(JSON.stringify(cut))}`;
  return Buffer.byteLength(part) <= left ? text + part : text;
}

/** Returns whether a text is longer than this in UTF-8. */
function isLonger(text: string, bytes: number): boolean {
  return text.length * MAX_UTF8_BYTES > bytes && Buffer.byteLength(text) > bytes;
}

/** @param clientChars the longest text of a member that its client has chosen. */
function membersText(
  event: Omit<AuditEvent, 'argumentsText'>,
  time: string,
  maxChars: number,
  clientChars = maxChars,
): string {
  if (!hasLongText(event, clientChars)) return `"time":"${time}",${escaped(JSON.stringify(event)).slice(1, -1)}`;
  let text = `"time":"${time}"`;
  for (const [name, value] of Object.entries(event)) {
    const most = OF_CLIENTS.has(name) ? clientChars : maxChars;
    if (value !== undefined) text += `,"${name}":${valueText(value, most)}`;
  }
  return escaped(text);
}

/** Returns whether a member would be cut. Nearly every record has none, and is written at once. */
function hasLongText(event: Omit<AuditEvent, 'argumentsText'>, maxChars: number): boolean {
  return isLong(event, maxChars) || (event.rule !== undefined && isLong(event.rule, maxChars));
}

function isLong(members: object, maxChars: number): boolean {
  return Object.values(members).some((value) => typeof value === 'string' && value.length > maxChars);
}

function valueText(value: unknown, maxChars: number): string {
  if (typeof value === 'string') {
    return JSON.stringify(value.length > maxChars ? `${value.slice(0, maxChars)}…` : value);
  }
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([name, member]) => `"${name}":${valueText(member, maxChars)}`);
  return `{${members.join(',')}}`;
}

/** Returns a JSON text with unseen characters as escapes. They can stand only inside its strings. */
function escaped(json: string): string {
  // Nearly every record is ASCII, and this takes a third of the time of a search.
  if (Buffer.byteLength(json) === json.length && !json.includes(DELETE)) return json;
  return escapeUnseen(json);
}

import { LIMITS } from '../../limits.ts';
import { SHOWN_CHARS, shownLines, shownText } from '../../peer-text.ts';
import { isPlain } from '../redact.ts';

type Fields = Readonly<Record<string, unknown>>;

/** The longest part of a message of a log line. Also that of a field in which text of the gateway stands around that of a peer. */
export const MESSAGE_CHARS = 1_000;

/** Fields that are longer than a text of a peer, with the part of them that is logged. */
const LONG_FIELDS: ReadonlyMap<string, number> = new Map([
  ['message', MESSAGE_CHARS],
  ['reason', MESSAGE_CHARS],
  ['detail', MESSAGE_CHARS],
  ['line', LIMITS.stderrLineBytes + 1],
  ['stderr', 4_000],
  ['stack', 4_000],
]);

/** The items of a list that are logged. */
const MAX_ITEMS = 100;

/** Returns the fields of a log line with each text cut and its unseen characters as escapes. Any of them may be of a peer. */
export function shownFields(fields: Fields): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, shownValue(name, value)]));
}

/** Returns the value of a field of that name as {@link shownFields} does. */
export function shownValue(name: string, value: unknown): unknown {
  if (typeof value === 'string') return shownLines(value, LONG_FIELDS.get(name) ?? SHOWN_CHARS);
  if (Array.isArray(value)) {
    const items = value.slice(0, MAX_ITEMS).map((item: unknown) => shownValue(name, item));
    return value.length > MAX_ITEMS ? [...items, `… and ${value.length - MAX_ITEMS} more`] : items;
  }
  // The serializer of errors shows them.
  if (!isPlain(value) || value instanceof Error) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [shownText(key), shownValue(key, member)]));
}

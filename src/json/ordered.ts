import { arrayText, isArrayText, isObjectText, quoted, RawObject, rawItems } from './json.ts';

/**
 * Returns the text of a JSON value without spaces, and with the members of objects in the order of their names. Numbers and strings keep
 * their spelling. The nesting of the value must be bounded.
 *
 * @throws {JsonTextError} if the text is not JSON, or an object in it names a member twice.
 */
export function orderedText(raw: string): string {
  const text = raw.trim();
  if (isArrayText(text)) return arrayText(rawItems(text).map(orderedText));
  if (!isObjectText(text)) return text;
  const object = RawObject.parse(text);
  return objectText([...object.keys()].map((name) => [name, orderedText(object.raw(name) ?? 'null')]));
}

/** Returns the text of an object with these members, in the order of their names. The values are JSON texts. */
export function objectText(members: readonly (readonly [name: string, value: string])[]): string {
  const sorted = members.toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${sorted.map(([name, value]) => `${quoted(name)}:${value}`).join(',')}}`;
}

import { isRecord } from '../../json/record.ts';
import { z } from 'zod';

import { type Data, type Document, problemOfKey } from '../document/document.ts';
import { type Expanded, isList, valueAt, withValue } from '../document/expanded.ts';
import type { Path, Problem } from '../document/problem.ts';
import { portFault } from './address.ts';
import { HINTS } from './scalars.ts';
import { SECRET_FIELDS } from './secret-fields.ts';
import { didYouMean, suggest } from '../document/suggest.ts';

type Section<T> = { readonly value: T } | { readonly problems: readonly Problem[] };

/**
 * Checks one part of a file against its schema.
 *
 * An expanded variable is text, but may stand for a number or a boolean. A text that could not be expanded counts as
 * absent, because its problem is reported elsewhere.
 *
 * @param options.withoutIncomplete counts a map as absent, too, if such a text is all that it lacks.
 */
export function checkSection<S extends z.ZodType>(
  schema: S,
  document: Document,
  path: Path,
  { data, replaced, unexpanded }: Expanded,
  { withoutIncomplete = false } = {},
): Section<z.output<S>> {
  const missing = new Set(unexpanded.map(({ path }) => JSON.stringify(path)));
  let given = data;
  let first: readonly string[] | undefined;
  for (;;) {
    const result = schema.safeParse(given);
    if (result.success) return { value: result.data };
    const { issues } = result.error;
    first ??= issues.map((issue) => JSON.stringify(pathOf(issue)));

    const before = given;
    for (const issue of issues) {
      const inside = pathOf(issue);
      const whole = JSON.stringify([...path, ...inside]);
      const value = valueAt(given, inside);
      if (missing.has(whole)) given = withValue(given, inside, undefined);
      else if (replaced.has(whole) && typeof value === 'string') given = withValue(given, inside, scalar(value));
    }
    if (!isEqual(given, before)) continue;
    for (const issue of withoutIncomplete ? issues : []) {
      const inside = pathOf(issue);
      // An issue that came up when other texts were removed is about their map as a whole.
      const isOfMap = issue.code === 'custom' && !first.includes(JSON.stringify(inside));
      if (!isOfMap && !missing.has(JSON.stringify([...path, ...inside]))) continue;
      const map = mapOf(given, inside);
      const lacks = unexpanded.some((one) => isWithin(one.path, [...path, ...map]));
      if (map.length > 0 && lacks) given = withValue(given, map, undefined);
    }
    if (!isEqual(given, before)) continue;
    return { problems: withoutRepeats(issues).flatMap((issue) => explain(schema, document, path, issue, replaced)) };
  }
}

/** Leaves out what another issue says about the same value. The length of an empty list is checked where a text is expected, too. */
function withoutRepeats(issues: readonly z.core.$ZodIssue[]): readonly z.core.$ZodIssue[] {
  const byPath = Map.groupBy(issues, (issue) => JSON.stringify(pathOf(issue)));
  return [...byPath.values()].flatMap((here) => {
    const ofType = here.find(({ code }) => code === 'invalid_type');
    if (ofType !== undefined) return [ofType];
    return here.filter(({ message }, index) => here.findIndex((other) => other.message === message) === index);
  });
}

/** Converts `"8"` to 8, `"0.1"` to 0.1 and `"true"` to true; other text stays. */
function scalar(text: string): Data {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^-?\d{1,15}(?:\.\d{1,15})?$/.test(text) ? Number(text) : text;
}

function pathOf(issue: z.core.$ZodIssue): (string | number)[] {
  return issue.path.filter((step) => typeof step !== 'symbol');
}

function isEqual(a: Data, b: Data): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Returns the path of the map that a problem is in; of the whole list, if the map is in one. */
function mapOf(data: Data, inside: Path): Path {
  const end = isRecord(valueAt(data, inside)) ? inside : inside.slice(0, -1);
  const index = end.findIndex((step) => typeof step === 'number');
  return index === -1 ? end : end.slice(0, index);
}

function isWithin(path: Path, map: Path): boolean {
  return map.every((step, index) => path[index] === step);
}

function explain(
  schema: z.ZodType,
  document: Document,
  base: Path,
  issue: z.core.$ZodIssue,
  replaced: ReadonlySet<string>,
): Problem[] {
  const inside = pathOf(issue);
  const path = [...base, ...inside];
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(schema, inside);
    return issue.keys.map((key) => problemOfKey(document, [...path, key], unknownKey(key, known)));
  }
  const isRefused = issue.code === 'invalid_type' && issue.expected === 'never';
  if (isRefused || issue.code === 'invalid_key') return [problemOfKey(document, path, issue.message)];

  const expected =
    issue.code === 'invalid_type' && !issue.message.startsWith('expected')
      ? `expected ${typeName(issue.expected)}`
      : issue.message;
  const value = valueAt(document.data, path);
  if (value === undefined) return [document.problem(path, `missing; ${expected}`, 'key')];
  const message = (typeof value === 'string' && isUrlOrAddress(expected) ? portFault(value) : undefined) ?? expected;
  const hint = replaced.has(JSON.stringify(path))
    ? undefined
    : (HINTS.get(message)?.(value) ?? nearest(message, value));
  // The value stands before the advice, which may end in a command.
  const [fault = '', ...advice] = message.split('; ');
  const got = shown(path, value, isOfMap(issue));
  const found = got === 'text' && advice.length > 0 ? fault : `${fault}, got ${got}${didYouMean(hint)}`;
  return [document.problem(path, [found, ...advice].join('; '))];
}

/** Returns whether a message expects a URL or an address, so that the port of the value may be the mistake. */
function isUrlOrAddress(message: string): boolean {
  return /^expected .*(?:host:port|:\/\/|\bURL\b)/.test(message);
}

/** Returns the nearest of the words that a message lists (`expected one of "a", "b"`). */
function nearest(message: string, value: Data): string | undefined {
  if (typeof value !== 'string' || !message.startsWith('expected one of')) return undefined;
  return suggest(
    value,
    [...message.matchAll(/"([^"]+)"/g)].map(([, word = '']) => word),
  );
}

/** Names that other programs give to settings, by which people look for ours. */
const OTHER_NAMES: ReadonlyMap<string, string> = new Map([
  ['host', 'listen'],
  ['port', 'listen'],
  ['log', 'logLevel'],
]);

function unknownKey(key: string, known: readonly string[]): string {
  const near = suggest(key, known) ?? known.find((one) => one === OTHER_NAMES.get(key));
  return near === undefined ? `unknown key; known are ${known.join(', ')}` : `unknown key${didYouMean(near)}`;
}

function typeName(expected: string): string {
  if (expected === 'object' || expected === 'record') return 'a map';
  return expected === 'array' ? 'a list' : expected;
}

/** Returns whether a problem is about a value for which the schema has only maps and lists. */
function isOfMap(issue: z.core.$ZodIssue): boolean {
  if (issue.code === 'invalid_union') return issue.errors.every((form) => form.some(isOfMap));
  return issue.code === 'invalid_type' && /^(?:object|record|array)$/.test(issue.expected);
}

/** A URL with a user name, and perhaps a password. */
const CREDENTIALS = /:\/\/[^/?#]*@/;

/**
 * Returns a value as the file has it, or its type if it may be secret. Such a value is not shown, not even unexpanded.
 *
 * @param ofMap whether a map or a list belongs there. People write the secret itself in its place.
 */
function shown(path: Path, value: Data, ofMap: boolean): string {
  if (value === null) return 'nothing';
  if (isList(value)) return 'a list';
  if (isRecord(value)) return 'a map';
  const isSecret = path.some((step) => typeof step === 'string' && SECRET_FIELDS.has(step));
  if (ofMap || isSecret || CREDENTIALS.test(String(value))) {
    return typeof value === 'string' ? 'text' : `a ${typeof value}`;
  }
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}…"` : text;
}

/** Returns the keys that the schema allows in the map at `path`. */
function knownKeys(schema: z.core.$ZodType, path: readonly (string | number)[]): readonly string[] {
  if (schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional) return knownKeys(schema.def.innerType, path);
  const [step, ...rest] = path;
  if (schema instanceof z.ZodObject) {
    if (step === undefined)
      return Object.keys(schema.shape).filter(
        (key) => !(schema.shape[key] instanceof z.ZodOptional && schema.shape[key].def.innerType instanceof z.ZodNever),
      );
    const member = schema.shape[String(step)];
    return member === undefined ? [] : knownKeys(member, rest);
  }
  if (schema instanceof z.ZodRecord) return knownKeys(schema.def.valueType, rest);
  if (schema instanceof z.ZodArray) return knownKeys(schema.def.element, rest);
  return [];
}

import { isRecord } from '../json/record.ts';
import { isDeepStrictEqual } from 'node:util';
import { type Change, change, type ChangeCode, shownValue, textDifference } from './change.ts';

type Members = Readonly<Record<string, unknown>>;

/** An object without members, not even those that objects inherit. */
export const NO_MEMBERS: Members = { __proto__: null };

/** Limits by the direction in which they get looser. */
const LOWER_LIMITS = new Set(['minimum', 'exclusiveMinimum', 'minLength', 'minItems', 'minProperties', 'minContains']);
const UPPER_LIMITS = new Set(['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems', 'maxProperties', 'maxContains']);

/** Keywords that restrict a value; without them more is accepted. */
const RESTRICTIONS = new Set(['pattern', 'format', 'multipleOf', 'uniqueItems', 'not', 'contains', 'propertyNames']);

/** Keywords with texts for people and models, which restrict nothing. */
const TEXTS = new Set(['description', 'title', '$comment', 'errorMessage']);

/** Keywords whose members are schemas. */
const MAPS = new Set(['$defs', 'definitions', 'patternProperties', 'dependentSchemas']);

/** Keywords that are read together with others. */
const HANDLED = new Set(['type', 'enum', 'const', 'properties', 'required']);

/**
 * Returns the changes between two JSON Schemas in words: what is accepted now and was not before, what is refused, and which texts
 * differ. A schema that is equal in meaning may still be reported as changed.
 */
export function schemaChanges(before: unknown, after: unknown, path: readonly string[]): readonly Change[] {
  if (isDeepStrictEqual(before, after)) return [];
  const [from, to] = [asMembers(before), asMembers(after)];
  if (from === undefined || to === undefined) return [replaced(before, after, path)];
  const keys = [...new Set([...Object.keys(from), ...Object.keys(to)])].filter((key) => !HANDLED.has(key));
  return [
    ...typeChanges(from, to, path),
    ...valueChanges(from, to, path),
    ...propertyChanges(from, to, path),
    ...keys.flatMap((key) => keywordChanges(key, from[key], to[key], [...path, key])),
  ];
}

/** Returns a schema as its members: `true` accepts anything, as `{}` does. Undefined for a schema that is no map. */
function asMembers(schema: unknown): Members | undefined {
  if (schema === true) return NO_MEMBERS;
  return isRecord(schema) ? schema : undefined;
}

function replaced(before: unknown, after: unknown, path: readonly string[]): Change {
  const code = before === false ? 'schema-wider' : after === false ? 'schema-narrower' : 'schema-changed';
  return change(code, path, `${shownValue(before)} → ${shownValue(after)}`);
}

/** Compares two sets of accepted values; undefined accepts all. Returns undefined for equal sets. */
function setChange(
  before: ReadonlySet<string> | undefined,
  after: ReadonlySet<string> | undefined,
): ChangeCode | undefined {
  if (before === undefined) return after === undefined ? undefined : 'schema-narrower';
  if (after === undefined) return 'schema-wider';
  const isWider = !after.isSubsetOf(before);
  const isNarrower = !before.isSubsetOf(after);
  if (isWider && isNarrower) return 'schema-changed';
  return isWider ? 'schema-wider' : isNarrower ? 'schema-narrower' : undefined;
}

function typesOf({ type }: Members): ReadonlySet<string> | undefined {
  if (type === undefined) return undefined;
  const types = (Array.isArray(type) ? type : [type]).map(String);
  // Every integer is a number.
  return new Set(types.includes('number') ? [...types, 'integer'] : types);
}

function typeChanges(before: Members, after: Members, path: readonly string[]): readonly Change[] {
  const code = setChange(typesOf(before), typesOf(after));
  if (code === undefined) return [];
  const words = code === 'schema-wider' ? 'accepts more types' : 'type';
  const text = `${words}: ${shownValue(before['type'])} → ${shownValue(after['type'])}`;
  return [change(code, path, text)];
}

function valuesOf(schema: Members): ReadonlySet<string> | undefined {
  if ('const' in schema) return new Set([JSON.stringify(schema['const'])]);
  const { enum: values } = schema;
  return Array.isArray(values) ? new Set(values.map((value) => JSON.stringify(value))) : undefined;
}

function valueChanges(before: Members, after: Members, path: readonly string[]): readonly Change[] {
  const [from, to] = [valuesOf(before), valuesOf(after)];
  const code = setChange(from, to);
  if (code === undefined) {
    const isOdd = !isDeepStrictEqual([before['enum'], before['const']], [after['enum'], after['const']]);
    return isOdd ? [change('schema-changed', path, 'the same values are written in another way')] : [];
  }
  if (from === undefined || to === undefined) {
    return [change(code, path, from === undefined ? 'accepts only some values now' : 'accepts any value now')];
  }
  const words = [
    ...[...to.difference(from)].map((value) => `value ${shownValue(JSON.parse(value))} added`),
    ...[...from.difference(to)].map((value) => `value ${shownValue(JSON.parse(value))} removed`),
  ];
  return [change(code, path, words.join(', '))];
}

function propertyChanges(before: Members, after: Members, path: readonly string[]): readonly Change[] {
  const [from, to] = [membersOf(before['properties']), membersOf(after['properties'])];
  const [needed, needs] = [namesOf(before['required']), namesOf(after['required'])];
  const at = (name: string) => [...path, 'properties', name];
  const names = [...new Set([...Object.keys(from), ...Object.keys(to), ...needed, ...needs])];
  return names.flatMap((name): readonly Change[] => {
    const [was, is] = [Object.hasOwn(from, name), Object.hasOwn(to, name)];
    const [wasNeeded, isNeeded] = [needed.has(name), needs.has(name)];
    if (!was && is) return [newArgument(at(name), isNeeded)];
    if (was && !is) return [change('argument-removed', at(name), 'the argument is gone')];
    const changes = was ? schemaChanges(from[name], to[name], at(name)) : [];
    if (wasNeeded === isNeeded) return changes;
    const code = isNeeded ? 'argument-required' : 'argument-optional';
    return [
      change(code, at(name), isNeeded ? 'the argument is required now' : 'the argument is optional now'),
      ...changes,
    ];
  });
}

function membersOf(value: unknown): Members {
  return isRecord(value) ? value : NO_MEMBERS;
}

function namesOf(required: unknown): ReadonlySet<string> {
  return new Set(Array.isArray(required) ? required.map(String) : []);
}

function keywordChanges(key: string, before: unknown, after: unknown, path: readonly string[]): readonly Change[] {
  if (isDeepStrictEqual(before, after)) return [];
  if (TEXTS.has(key)) return [textChange(before, after, path)];
  if (LOWER_LIMITS.has(key) || UPPER_LIMITS.has(key)) return [limitChange(key, before, after, path)];
  if (key === 'additionalProperties' || key === 'unevaluatedProperties') return openness(before, after, path);
  if (key === 'items' && before !== undefined && after !== undefined) return schemaChanges(before, after, path);
  if (MAPS.has(key)) return mapChanges(membersOf(before), membersOf(after), path);
  if (Array.isArray(before) && Array.isArray(after)) return listChanges(key, before, after, path);
  if (RESTRICTIONS.has(key) || key === 'allOf' || key === 'anyOf' || key === 'oneOf' || key === 'items') {
    if (before === undefined) return [change('schema-narrower', path, `restricted to ${shownValue(after)}`)];
    if (after === undefined) return [change('schema-wider', path, 'the restriction is gone')];
  }
  return [change('schema-changed', path, `${shownValue(before)} → ${shownValue(after)}`)];
}

export function newArgument(path: readonly string[], isRequired: boolean): Change {
  return isRequired
    ? change('argument-required', path, 'new required argument')
    : change('argument-added', path, 'new optional argument');
}

/** Returns the change of a text for people or models. */
export function textChange(before: unknown, after: unknown, path: readonly string[]): Change {
  const isText = typeof before === 'string' && typeof after === 'string';
  const text = isText ? textDifference(before, after) : `${shownValue(before)} → ${shownValue(after)}`;
  return change('description-changed', path, text);
}

function limitChange(key: string, before: unknown, after: unknown, path: readonly string[]): Change {
  const text = `${shownValue(before)} → ${shownValue(after)}`;
  if (before === undefined) return change('schema-narrower', path, text);
  if (after === undefined) return change('schema-wider', path, text);
  if (typeof before !== 'number' || typeof after !== 'number') return change('schema-changed', path, text);
  return change(after < before === LOWER_LIMITS.has(key) ? 'schema-wider' : 'schema-narrower', path, text);
}

/** Compares what is accepted for members that no property names; absent accepts all. */
function openness(before: unknown, after: unknown, path: readonly string[]): readonly Change[] {
  const [from, to] = [before ?? true, after ?? true];
  if (isDeepStrictEqual(from, to)) return [change('schema-changed', path, 'the same is written in another way')];
  if (from === false) return [change('schema-wider', path, 'arguments that the schema does not name are accepted now')];
  if (to === false) return [change('schema-narrower', path, 'arguments that the schema does not name are refused now')];
  if (from === true) return [change('schema-narrower', path, `restricted to ${shownValue(to)}`)];
  if (to === true) return [change('schema-wider', path, 'the restriction is gone')];
  return schemaChanges(from, to, path);
}

function mapChanges(before: Members, after: Members, path: readonly string[]): readonly Change[] {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((name) => {
    if (!Object.hasOwn(before, name)) return [change('schema-changed', [...path, name], 'added')];
    if (!Object.hasOwn(after, name)) return [change('schema-changed', [...path, name], 'removed')];
    return schemaChanges(before[name], after[name], [...path, name]);
  });
}

/** Compares lists of alternatives (`anyOf`, `oneOf`), of conditions (`allOf`), and all other lists. */
function listChanges(
  key: string,
  before: readonly unknown[],
  after: readonly unknown[],
  path: readonly string[],
): readonly Change[] {
  if (before.length === after.length && key !== 'examples') {
    return after.flatMap((item, at) => schemaChanges(before[at], item, [...path, String(at)]));
  }
  const code = setChange(textsOf(before), textsOf(after));
  const isReversed = key === 'allOf';
  if (key !== 'anyOf' && key !== 'oneOf' && !isReversed) {
    return [change('schema-changed', path, `${shownValue(before)} → ${shownValue(after)}`)];
  }
  const counts = `${before.length} → ${after.length} alternatives`;
  if (code === 'schema-wider') return [change(isReversed ? 'schema-narrower' : 'schema-wider', path, counts)];
  if (code === 'schema-narrower') return [change(isReversed ? 'schema-wider' : 'schema-narrower', path, counts)];
  return [change('schema-changed', path, counts)];
}

function textsOf(values: readonly unknown[]): ReadonlySet<string> {
  return new Set(values.map((value) => JSON.stringify(value)));
}

/**
 * Checks whether the output schema of a tool can be compiled. The TypeScript SDK 1.x compiles all schemas of a list with Ajv before it
 * returns the list. So its clients lose all tools to one schema that Ajv refuses. This check is stricter than Ajv where honest schemas do
 * not differ: a reference must lead to a place in the same schema.
 */

import { detach, KeptSet } from '../../json/kept-text.ts';
import { isRecord } from '../../json/record.ts';

type Value = unknown;
type Members = Readonly<Record<string, Value>>;

const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'null', 'object', 'array']);

/** Keywords by the kind of their values: numbers, schemas, lists of schemas, maps of schemas. */
const NUMBERS = [
  'maximum',
  'minimum',
  'exclusiveMaximum',
  'exclusiveMinimum',
  'multipleOf',
  'maxLength',
  'minLength',
  'maxItems',
  'minItems',
  'maxProperties',
  'minProperties',
];
const SCHEMAS = ['additionalItems', 'additionalProperties', 'contains', 'propertyNames', 'not', 'if', 'then', 'else'];
const SCHEMA_LISTS = ['allOf', 'anyOf', 'oneOf'];
const SCHEMA_MAPS = ['properties', 'patternProperties', 'definitions', '$defs'];

/** Keywords whose values are data, and contain no schemas. */
const DATA = new Set(['default', 'const', 'enum', 'examples']);

/** Refused keywords: they change how a schema is compiled, or which schema a reference leads to. */
const REFUSED = ['id', '$id', '$async', '$anchor', '$dynamicAnchor'];

/** Escapes in a pattern, with the name in those such as `\p{L}`. */
const ESCAPE = /\\(?:p\{([^{}]*)\}|.)/gis;

/** Names of classes of characters that exist, of which there are some thousands. */
const classes = new KeptSet();

function isRegExp(text: string): boolean {
  try {
    return new RegExp(text, 'u') instanceof RegExp;
  } catch {
    return false;
  }
}

function isClass(name: string): boolean {
  if (classes.has(name)) return true;
  if (!isRegExp(`\\p{${name}}`)) return false;
  classes.add(detach(name));
  return true;
}

/** Returns whether a value is a pattern. It is parsed with `\d` for each class, since V8 takes up to 0.2 ms for one. */
function isPattern(value: Value): boolean {
  if (typeof value !== 'string') return false;
  for (const [, name] of value.matchAll(ESCAPE)) if (name !== undefined && !isClass(name)) return false;
  return isRegExp(value.replaceAll(ESCAPE, (escape, name?: string) => (name === undefined ? escape : String.raw`\d`)));
}

function hasValidType({ type, nullable }: Members): boolean {
  const types: readonly Value[] = Array.isArray(type) ? type : type === undefined ? [] : [type];
  if (!types.every((one) => typeof one === 'string' && TYPES.has(one))) return false;
  return nullable === undefined || (typeof nullable === 'boolean' && types.length > 0 && !types.includes('null'));
}

function hasValidKeywords(schema: Members): boolean {
  const { pattern, format, required, uniqueItems } = schema;
  return (
    hasValidType(schema) &&
    NUMBERS.every((name) => schema[name] === undefined || typeof schema[name] === 'number') &&
    (pattern === undefined || isPattern(pattern)) &&
    (format === undefined || typeof format === 'string') &&
    (uniqueItems === undefined || typeof uniqueItems === 'boolean') &&
    (schema['enum'] === undefined || (Array.isArray(schema['enum']) && schema['enum'].length > 0)) &&
    (required === undefined || (Array.isArray(required) && required.every((name) => typeof name === 'string')))
  );
}

/** The schemas found so far, and the targets of references as the parts of their JSON pointers. */
interface Found {
  readonly schemas: Set<Value>;
  readonly targets: (readonly string[])[];
}

/** Returns the parts of a JSON pointer in a fragment; undefined for any other reference. */
function targetOf(ref: Value): readonly string[] | undefined {
  if (typeof ref !== 'string' || !(ref === '#' || ref.startsWith('#/'))) return undefined;
  try {
    const parts = ref.split('/').slice(1).map(decodeURIComponent);
    return parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  } catch {
    return undefined;
  }
}

function isSchema(value: Value, found: Found): boolean {
  if (typeof value === 'boolean') return true;
  if (!isRecord(value) || !hasValidKeywords(value) || REFUSED.some((name) => Object.hasOwn(value, name))) return false;
  found.schemas.add(value);
  if (value['$ref'] !== undefined) {
    const target = targetOf(value['$ref']);
    if (target === undefined) return false;
    found.targets.push(target);
  }
  return Object.entries(value).every(([name, member]) => {
    if (SCHEMAS.includes(name)) return isSchema(member, found);
    if (SCHEMA_LISTS.includes(name)) return isSchemaList(member, found);
    if (SCHEMA_MAPS.includes(name)) return isSchemaMap(member, found, name === 'patternProperties');
    if (name === 'items') return Array.isArray(member) ? isSchemaList(member, found) : isSchema(member, found);
    if (name === 'dependencies') return isDependencies(member, found);
    return DATA.has(name) || hasNoIds(member);
  });
}

function isSchemaList(value: Value, found: Found): boolean {
  return Array.isArray(value) && value.every((item) => isSchema(item, found));
}

function isSchemaMap(value: Value, found: Found, isByPattern: boolean): boolean {
  return (
    isRecord(value) &&
    Object.entries(value).every(([name, item]) => (!isByPattern || isPattern(name)) && isSchema(item, found))
  );
}

function isDependencies(value: Value, found: Found): boolean {
  return (
    isRecord(value) &&
    Object.values(value).every((item) =>
      Array.isArray(item) ? item.every((one) => typeof one === 'string') : isSchema(item, found),
    )
  );
}

function memberAt(root: Value, path: readonly string[]): Value {
  let value = root;
  for (const name of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = Object.getOwnPropertyDescriptor(value, name)?.value;
  }
  return value;
}

/** Returns whether no refused keyword is in a value, since Ajv looks for ids under unknown keywords too. */
function hasNoIds(value: Value): boolean {
  if (Array.isArray(value)) return value.every(hasNoIds);
  if (!isRecord(value)) return true;
  return !REFUSED.some((name) => Object.hasOwn(value, name)) && Object.values(value).every(hasNoIds);
}

/**
 * Returns whether every client can compile the schema.
 *
 * @param schema parsed JSON, without a `$id` at the top.
 */
export function isCompilable(schema: unknown): boolean {
  const found: Found = { schemas: new Set(), targets: [] };
  return isSchema(schema, found) && found.targets.every((path) => found.schemas.has(memberAt(schema, path)));
}

/** Walks over the subschemas of a JSON Schema given as text. Leaves data and unknown keywords unchanged. */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../json/json.ts';
import { BACKSLASH, CLOSE_OBJECT, OPEN_OBJECT, QUOTE } from '../json/scan.ts';

/** Keywords that hold a schema or a list of schemas (`items` holds either, depending on the dialect). */
const SCHEMAS = new Set([
  'items',
  'prefixItems',
  'additionalItems',
  'unevaluatedItems',
  'contains',
  'additionalProperties',
  'unevaluatedProperties',
  'propertyNames',
  'contentSchema',
  'allOf',
  'anyOf',
  'oneOf',
  'not',
  'if',
  'then',
  'else',
]);

/** Keywords that hold a map of schemas; authors choose the names. */
const NAMED_SCHEMAS = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]);

/** Far more than readers of schemas need, whose subschemas are read again at each level. */
const MAX_READ_CHARS = 4_194_304;

/** Returns whether reading all subschemas takes too long. That depends on the sum of the lengths of all objects in the schema. */
export function isTooDeep(schema: RawObject): boolean {
  const text = schema.toString();
  let chars = 0;
  let isInString = false;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char === BACKSLASH) i++;
    else if (char === QUOTE) isInString = !isInString;
    else if (!isInString && char === OPEN_OBJECT) chars -= i;
    else if (!isInString && char === CLOSE_OBJECT) chars += i;
  }
  return chars > MAX_READ_CHARS;
}

/**
 * Transforms one direct subschema.
 *
 * @param keyword the keyword that holds the subschema.
 * @param name its name, if the keyword holds a map of schemas.
 */
export type SchemaTransform = (schema: RawObject, keyword: string, name: string | undefined) => RawObject;

function mapOne(raw: string, keyword: string, transform: SchemaTransform, name?: string): string {
  return isObjectText(raw) ? transform(RawObject.parse(raw), keyword, name).toString() : raw;
}

function mapList(raw: string, keyword: string, transform: SchemaTransform): string {
  const items = rawItems(raw);
  const mapped = items.map((item) => mapOne(item, keyword, transform));
  return mapped.every((item, index) => item === items[index]) ? raw : arrayText(mapped);
}

/**
 * Returns the schema with each direct subschema transformed by `transform`. To go deeper, `transform` calls this function
 * again.
 *
 * @throws {JsonTextError} if a part is not well-formed JSON, or names a member twice.
 */
export function mapSubschemas(schema: RawObject, transform: SchemaTransform): RawObject {
  return schema.map((raw, keyword) => {
    if (NAMED_SCHEMAS.has(keyword) && isObjectText(raw)) {
      return RawObject.parse(raw)
        .map((member, name) => mapOne(member, keyword, transform, name))
        .toString();
    }
    if (!SCHEMAS.has(keyword)) return raw;
    return isArrayText(raw) ? mapList(raw, keyword, transform) : mapOne(raw, keyword, transform);
  });
}

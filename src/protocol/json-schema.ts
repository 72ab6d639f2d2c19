/** JSON Schema as text: a walk over the schemas inside a schema, which leaves alone what is data and what nobody knows. */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../json/json.ts';

/** Keywords that hold a schema, or a list of schemas (`items` was both at times). */
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

/** Keywords that hold schemas by name; the names are anybody's. */
const NAMED_SCHEMAS = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]);

/**
 * One schema directly inside another.
 *
 * @param keyword the keyword it stands under.
 * @param name its name, under a keyword that names its schemas.
 */
export type Visit = (schema: RawObject, keyword: string, name: string | undefined) => RawObject;

function mapOne(raw: string, keyword: string, visit: Visit, name?: string): string {
  return isObjectText(raw) ? visit(RawObject.parse(raw), keyword, name).toString() : raw;
}

function mapList(raw: string, keyword: string, visit: Visit): string {
  const items = rawItems(raw);
  const mapped = items.map((item) => mapOne(item, keyword, visit));
  return mapped.every((item, index) => item === items[index]) ? raw : arrayText(mapped);
}

/**
 * The schema with each schema directly inside it put through `visit`, which goes deeper by calling this again.
 *
 * @throws {JsonTextError} when something in it is no well-formed JSON, or names a member twice.
 */
export function mapSubschemas(schema: RawObject, visit: Visit): RawObject {
  return schema.map((raw, keyword) => {
    if (NAMED_SCHEMAS.has(keyword) && isObjectText(raw)) {
      return RawObject.parse(raw)
        .map((member, name) => mapOne(member, keyword, visit, name))
        .toString();
    }
    if (!SCHEMAS.has(keyword)) return raw;
    return isArrayText(raw) ? mapList(raw, keyword, visit) : mapOne(raw, keyword, visit);
  });
}

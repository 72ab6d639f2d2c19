/**
 * Wraps structured content that is not an object, which only 2026-07-28 allows. For older revisions it becomes the member `result` of an
 * object, and so does its schema.
 *
 * @see https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main/seps/2106-json-schema-2020-12.md
 */

import { RawObject } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { isTooDeep, mapSubschemas } from '../json-schema.ts';

const POINTER = '#/properties/result';

/** Returns whether content of this schema has to be wrapped. Older clients accept only a root of type `object`. */
export function isWrapped(outputSchema: RawObject): boolean {
  return outputSchema.string('type') !== 'object';
}

/**
 * Returns whether the schema has a base URI of its own. In older dialects an `$id` that is only a fragment is an
 * anchor, and sets no base.
 */
function hasOwnBase(schema: RawObject): boolean {
  return schema.raw('$id') !== undefined && schema.string('$id')?.startsWith('#') !== true;
}

function movePointer(ref: string): string {
  return ref === '#' || ref.startsWith('#/') ? POINTER + ref.slice(1) : ref;
}

/**
 * Returns whether the schema uses `$recursiveRef`. It cannot be moved: it always refers to the root, or has no meaning
 * in that dialect.
 */
function usesRecursiveRef(outputSchema: RawObject): boolean {
  return outputSchema.toString().includes('"$recursiveRef"');
}

function moveRefs(schema: RawObject): RawObject {
  // References inside are relative to this base, which does not move.
  if (hasOwnBase(schema)) return schema;
  let moved = schema;
  for (const keyword of ['$ref', '$dynamicRef']) {
    const ref = schema.string(keyword);
    if (ref !== undefined) moved = moved.with(keyword, JSON.stringify(movePointer(ref)));
  }
  return mapSubschemas(moved, moveRefs);
}

/**
 * Returns the schema of `{"result": …}` around content of the given schema. Returns undefined if its references cannot
 * be rewritten, or are too deep for it; then the client must not get the schema.
 */
export function wrappedSchema(outputSchema: RawObject): RawObject | undefined {
  if (usesRecursiveRef(outputSchema) || isTooDeep(outputSchema)) return undefined;
  const dialect = outputSchema.raw('$schema');
  return unlessMalformed(() => {
    const inner = moveRefs(outputSchema.with('$schema', undefined));
    return RawObject.EMPTY.with('$schema', dialect)
      .with('type', '"object"')
      .with('properties', `{"result":${inner.toString()}}`)
      .with('required', '["result"]');
  }, undefined);
}

/** Returns raw structured content inside `{"result": …}`. */
export function wrappedContent(structuredContent: string): string {
  return `{"result":${structuredContent}}`;
}

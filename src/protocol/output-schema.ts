/**
 * Structured content that is no object, which 2026-07-28 allows and no older revision does: there it becomes the one member
 * `result` of an object, and the schema that promises it likewise.
 *
 * @see https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main/seps/2106-json-schema-2020-12.md
 */

import { JsonTextError, RawObject } from '../json/json.ts';
import { mapSubschemas } from './json-schema.ts';

const POINTER = '#/properties/result';

/** Whether a schema may promise what is no object; older clients read only roots that say `object`. */
export function isWrapped(outputSchema: RawObject): boolean {
  return outputSchema.string('type') !== 'object';
}

/** A fragment alone is an anchor in older dialects, and moves no base. */
function hasOwnBase(schema: RawObject): boolean {
  return schema.raw('$id') !== undefined && schema.string('$id')?.startsWith('#') !== true;
}

function movedPointer(ref: string): string {
  return ref === '#' || ref.startsWith('#/') ? POINTER + ref.slice(1) : ref;
}

/** The one reference that cannot be moved: in its dialect it always means the root, and where it does not it means nothing. */
function isRecursive(outputSchema: RawObject): boolean {
  return outputSchema.toString().includes('"$recursiveRef"');
}

function moveRefs(schema: RawObject): RawObject {
  // From here on, references are relative to what has not moved.
  if (hasOwnBase(schema)) return schema;
  let moved = schema;
  for (const keyword of ['$ref', '$dynamicRef']) {
    const ref = schema.string(keyword);
    if (ref !== undefined) moved = moved.with(keyword, JSON.stringify(movedPointer(ref)));
  }
  return mapSubschemas(moved, moveRefs);
}

/**
 * The schema of `{"result": …}` around what the given schema allows; undefined where its references cannot be rewritten, so
 * that it must be kept from the client.
 */
export function wrappedSchema(outputSchema: RawObject): RawObject | undefined {
  if (isRecursive(outputSchema)) return undefined;
  const dialect = outputSchema.raw('$schema');
  try {
    const inner = moveRefs(outputSchema.with('$schema', undefined));
    return RawObject.EMPTY.with('$schema', dialect)
      .with('type', '"object"')
      .with('properties', `{"result":${inner.toString()}}`)
      .with('required', '["result"]');
  } catch (thrown) {
    if (thrown instanceof JsonTextError) return undefined;
    throw thrown;
  }
}

/** Raw text of structured content as an older client reads it. */
export function wrappedContent(structuredContent: string): string {
  return `{"result":${structuredContent}}`;
}

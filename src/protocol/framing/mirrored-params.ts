/**
 * Reads `x-mcp-header` from the `inputSchema` of a tool: the arguments that a caller repeats in HTTP headers.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#schema-extension
 */

import { JsonTextError, type RawObject } from '../../json/json.ts';
import { isTooDeep, mapSubschemas } from '../json-schema.ts';

const KEYWORD = 'x-mcp-header';

/** An RFC 9110 `token`, which is valid in a header name. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** `number` is absent, because two sides may write the same number differently. */
const TYPES = new Set(['string', 'integer', 'boolean']);

/** One argument that is repeated in the header `Mcp-Param-<header>`. */
export interface MirroredParam {
  /** The schema's spelling; an RFC 9110 token. */
  readonly header: string;
  /** Member names from the arguments inwards; never empty. */
  readonly path: readonly string[];
}

/**
 * The outcome of reading the annotations. `invalid`: the tool must not be listed over HTTP with this schema; `why`
 * completes the sentence "the tool …".
 */
export type MirrorReading =
  | { readonly kind: 'mirrored'; readonly params: readonly MirroredParam[] }
  | { readonly kind: 'invalid'; readonly why: string };

const NONE: MirrorReading = { kind: 'mirrored', params: [] };

/** Internal: reports an invalid annotation. */
class InvalidAnnotation extends Error {}

/** Returns whether the text may hold an annotation. Escapes can hide the keyword. */
function mayHaveAnnotation(text: string): boolean {
  return text.includes(KEYWORD) || text.includes('\\u');
}

function readAnnotation(schema: RawObject, path: readonly string[] | undefined): MirroredParam {
  const header = schema.string(KEYWORD);
  const shown = (header ?? schema.raw(KEYWORD) ?? '').slice(0, 40);
  if (header === undefined || !TOKEN.test(header)) {
    throw new InvalidAnnotation(`has an ${KEYWORD} ${JSON.stringify(shown)} that is no name of a header`);
  }
  if (path === undefined || path.length === 0) {
    throw new InvalidAnnotation(`has ${KEYWORD} "${shown}" on a schema that is not a fixed argument path`);
  }
  if (!TYPES.has(schema.string('type') ?? ''))
    throw new InvalidAnnotation(`has ${KEYWORD} "${shown}" on a type that is no string, integer or boolean`);
  return { header, path };
}

function collectParams(root: RawObject): readonly MirroredParam[] {
  const params = new Map<string, MirroredParam>();
  /** `path` is undefined if the schema does not describe exactly one argument. */
  const visit = (schema: RawObject, path: readonly string[] | undefined): RawObject => {
    if (schema.raw(KEYWORD) !== undefined) {
      const param = readAnnotation(schema, path);
      const key = param.header.toLowerCase();
      if (params.has(key)) throw new InvalidAnnotation(`has the ${KEYWORD} "${param.header.slice(0, 40)}" twice`);
      params.set(key, param);
    }
    return mapSubschemas(schema, (inner, keyword, name) =>
      visit(inner, path !== undefined && name !== undefined && keyword === 'properties' ? [...path, name] : undefined),
    );
  };
  visit(root, []);
  return [...params.values()];
}

/** Reads from the `inputSchema` of a tool which arguments are repeated in headers. */
export function readMirrored(inputSchema: RawObject): MirrorReading {
  if (!mayHaveAnnotation(inputSchema.toString())) return NONE;
  if (isTooDeep(inputSchema)) {
    return { kind: 'invalid', why: `has an "inputSchema" that is too large and deep to be searched for ${KEYWORD}` };
  }
  try {
    return { kind: 'mirrored', params: collectParams(inputSchema) };
  } catch (thrown) {
    if (thrown instanceof InvalidAnnotation) return { kind: 'invalid', why: thrown.message };
    if (!(thrown instanceof JsonTextError)) throw thrown;
    return { kind: 'invalid', why: `has an "inputSchema" that cannot be searched for ${KEYWORD}: ${thrown.message}` };
  }
}

function withoutAnnotations(schema: RawObject): RawObject {
  return mapSubschemas(schema.with(KEYWORD, undefined), withoutAnnotations);
}

/**
 * Returns the schema unchanged if its annotations are valid, else without any annotation, since clients would drop the
 * tool otherwise. A schema that is too deep keeps those that it may have.
 *
 * @throws {JsonTextError} if a part is not well-formed JSON, or names a member twice.
 */
export function publishedSchema(inputSchema: RawObject): RawObject {
  const isKept = readMirrored(inputSchema).kind === 'mirrored' || isTooDeep(inputSchema);
  return isKept ? inputSchema : withoutAnnotations(inputSchema);
}

/**
 * `x-mcp-header` in the `inputSchema` of a tool: which arguments a caller repeats in HTTP headers.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#schema-extension
 */

import { JsonTextError, type RawObject } from '../json/json.ts';
import { mapSubschemas } from './json-schema.ts';

const KEYWORD = 'x-mcp-header';

/** RFC 9110 `token`: safe in the name of a header. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Not `number`: two sides may write the same one differently. */
const TYPES = ['string', 'integer', 'boolean'] as const;

/** One argument that is repeated in the header `Mcp-Param-<header>`. */
export interface MirroredParam {
  /** As the schema spells it; an RFC 9110 token. */
  readonly header: string;
  /** Names of members, from the arguments inwards; never empty. */
  readonly path: readonly string[];
  readonly type: (typeof TYPES)[number];
}

/** `invalid`: over HTTP, the tool must not be offered as it is; `why` completes "the tool …". */
export type MirrorReading =
  | { readonly kind: 'mirrored'; readonly params: readonly MirroredParam[] }
  | { readonly kind: 'invalid'; readonly why: string };

const NONE: MirrorReading = { kind: 'mirrored', params: [] };

/** Internal: found an annotation that must not be there. */
class Misplaced extends Error {}

/** Whether there may be an annotation; it can hide behind escapes. */
function mayMirror(text: string): boolean {
  return text.includes(KEYWORD) || text.includes('\\u');
}

function toParam(schema: RawObject, path: readonly string[] | undefined): MirroredParam {
  const header = schema.string(KEYWORD);
  const shown = (header ?? schema.raw(KEYWORD) ?? '').slice(0, 40);
  if (header === undefined || !TOKEN.test(header)) {
    throw new Misplaced(`has an ${KEYWORD} ${JSON.stringify(shown)} that is no name of a header`);
  }
  if (path === undefined || path.length === 0) {
    throw new Misplaced(`has the ${KEYWORD} "${shown}" where no argument is sure to be`);
  }
  const named = schema.string('type');
  const type = TYPES.find((known) => known === named);
  if (type === undefined) throw new Misplaced(`has the ${KEYWORD} "${shown}" on what is no string, integer or boolean`);
  return { header, path, type };
}

function collect(root: RawObject): readonly MirroredParam[] {
  const params = new Map<string, MirroredParam>();
  /** `path` is undefined where the schema does not stand for one argument alone. */
  const visit = (schema: RawObject, path: readonly string[] | undefined): RawObject => {
    if (schema.raw(KEYWORD) !== undefined) {
      const param = toParam(schema, path);
      const key = param.header.toLowerCase();
      if (params.has(key)) throw new Misplaced(`has the ${KEYWORD} "${param.header.slice(0, 40)}" twice`);
      params.set(key, param);
    }
    return mapSubschemas(schema, (inner, keyword, name) =>
      visit(inner, path !== undefined && name !== undefined && keyword === 'properties' ? [...path, name] : undefined),
    );
  };
  visit(root, []);
  return [...params.values()];
}

/** The arguments that go into headers, by the `inputSchema` of a tool. */
export function readMirrored(inputSchema: RawObject): MirrorReading {
  if (!mayMirror(inputSchema.toString())) return NONE;
  try {
    return { kind: 'mirrored', params: collect(inputSchema) };
  } catch (thrown) {
    if (thrown instanceof Misplaced) return { kind: 'invalid', why: thrown.message };
    if (!(thrown instanceof JsonTextError)) throw thrown;
    return { kind: 'invalid', why: `has an "inputSchema" that cannot be searched for ${KEYWORD}: ${thrown.message}` };
  }
}

function without(schema: RawObject): RawObject {
  return mapSubschemas(schema.with(KEYWORD, undefined), without);
}

/**
 * The schema as we may show it: as it is or, where an annotation is not by the rules, without any, since clients would have to
 * drop the tool for it.
 *
 * @throws {JsonTextError} when something in it is no well-formed JSON, or names a member twice.
 */
export function publishedSchema(inputSchema: RawObject): RawObject {
  const reading = readMirrored(inputSchema);
  const isFine = reading.kind === 'mirrored';
  return isFine ? inputSchema : without(inputSchema);
}

import { z } from 'zod';
import { SAFE_ICON_URI } from './icons.ts';
import type { ItemKind } from './kind.ts';

/** The form of a member for the strictest client of any language. Members that no shape names may have any value. */
export type Shape =
  | { readonly kind: 'string' | 'identifier' | 'boolean' | 'integer' }
  | { readonly kind: 'objectType' | 'schema' }
  | { readonly kind: 'number'; readonly min: number; readonly max: number }
  | { readonly kind: 'matching'; readonly pattern: RegExp }
  | { readonly kind: 'oneOf'; readonly values: readonly string[] }
  | { readonly kind: 'list'; readonly of: Shape }
  | { readonly kind: 'map'; readonly of: Shape }
  | ObjectShape;

export interface ObjectShape {
  readonly kind: 'object';
  readonly members: ReadonlyMap<string, Shape>;
  /** If one of these is absent or wrong, the object cannot be repaired. */
  readonly required: readonly string[];
  /** JSON texts of members that are added if absent. */
  readonly defaults: ReadonlyMap<string, string>;
}

const STRING: Shape = { kind: 'string' };
const BOOLEAN: Shape = { kind: 'boolean' };
const ANY_OBJECT = object({});

function object(
  members: Readonly<Record<string, Shape>>,
  required: readonly string[] = [],
  defaults: Readonly<Record<string, string>> = {},
): ObjectShape {
  return {
    kind: 'object',
    members: new Map(Object.entries(members)),
    required,
    defaults: new Map(Object.entries(defaults)),
  };
}

function list(of: Shape): Shape {
  return { kind: 'list', of };
}

const ICON_URI: Shape = { kind: 'matching', pattern: SAFE_ICON_URI };

const ICONS = list(
  object(
    { src: ICON_URI, mimeType: STRING, sizes: list(STRING), theme: { kind: 'oneOf', values: ['light', 'dark'] } },
    ['src'],
  ),
);

/** Members that every kind of item may have. */
const COMMON = { title: STRING, description: STRING, icons: ICONS, _meta: ANY_OBJECT };

const ANNOTATIONS = object({
  audience: list({ kind: 'oneOf', values: ['user', 'assistant'] }),
  priority: { kind: 'number', min: 0, max: 1 },
  // The pattern of the TypeScript clients, which refuse a list with any other text here.
  lastModified: { kind: 'matching', pattern: z.regexes.datetime({ offset: true }) },
});

const TOOL_ANNOTATIONS = object({
  title: STRING,
  readOnlyHint: BOOLEAN,
  destructiveHint: BOOLEAN,
  idempotentHint: BOOLEAN,
  openWorldHint: BOOLEAN,
});

/** A schema that describes an object: the only kind that clients before 2026-07-28 read. */
const OBJECT_SCHEMA = object(
  {
    $schema: STRING,
    type: { kind: 'objectType' },
    properties: { kind: 'map', of: { kind: 'schema' } },
    required: list(STRING),
  },
  ['type'],
  { type: '"object"' },
);

/** The output schema of a 2026-07-28 tool, which may describe any value. */
const ANY_SCHEMA = object({ $schema: STRING });

function toolShape(outputSchema: Shape): ObjectShape {
  return object(
    {
      ...COMMON,
      inputSchema: OBJECT_SCHEMA,
      outputSchema,
      annotations: TOOL_ANNOTATIONS,
      execution: object({ taskSupport: { kind: 'oneOf', values: ['required', 'optional', 'forbidden'] } }),
    },
    ['inputSchema'],
  );
}

const LEGACY_TOOL = toolShape(OBJECT_SCHEMA);
const MODERN_TOOL = toolShape(ANY_SCHEMA);

const ARGUMENT = object({ name: { kind: 'identifier' }, title: STRING, description: STRING, required: BOOLEAN }, [
  'name',
]);

const SHAPES: Readonly<Record<Exclude<ItemKind, 'tool'>, ObjectShape>> = {
  prompt: object({ ...COMMON, arguments: list(ARGUMENT) }),
  resource: object({ ...COMMON, name: STRING, mimeType: STRING, size: { kind: 'integer' }, annotations: ANNOTATIONS }, [
    'name',
  ]),
  template: object({ ...COMMON, name: STRING, mimeType: STRING, annotations: ANNOTATIONS }, ['name']),
};

/** Returns the shape of an item without its key (`name`, `uri` or `uriTemplate`), which `item.ts` checks. */
export function shapeOf(kind: ItemKind, isModern: boolean): ObjectShape {
  if (kind === 'tool') return isModern ? MODERN_TOOL : LEGACY_TOOL;
  return SHAPES[kind];
}

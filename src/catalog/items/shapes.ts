import { z } from 'zod';
import { SAFE_ICON_URI } from './icons.ts';
import type { ItemKind } from './kind.ts';
import { hasUnseen } from '../../peer-text.ts';

/** The form of a member for the strictest client of any language. Members that no shape names may have any value. */
export type Shape =
  | { readonly kind: 'scalar'; readonly accepts: (value: unknown) => boolean }
  | { readonly kind: 'objectType' | 'schema' }
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

const STRING = text(() => true);
const BOOLEAN: Shape = { kind: 'scalar', accepts: (value) => typeof value === 'boolean' };
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

function text(accepts: (value: string) => boolean): Shape {
  return { kind: 'scalar', accepts: (value) => typeof value === 'string' && accepts(value) };
}

function oneOf(...values: readonly string[]): Shape {
  return text((value) => values.includes(value));
}

const ICON_URI = text((value) => SAFE_ICON_URI.test(value));

const ICONS = list(
  object({ src: ICON_URI, mimeType: STRING, sizes: list(STRING), theme: oneOf('light', 'dark') }, ['src']),
);

/** Members that every kind of item may have. */
const COMMON = { title: STRING, description: STRING, icons: ICONS, _meta: ANY_OBJECT };

/** The pattern of the TypeScript clients, which refuse a list with any other text in `lastModified`. */
const TIME = z.regexes.datetime({ offset: true });

const ANNOTATIONS = object({
  audience: list(oneOf('user', 'assistant')),
  priority: { kind: 'scalar', accepts: (value) => typeof value === 'number' && value >= 0 && value <= 1 },
  lastModified: text((value) => TIME.test(value)),
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
      execution: object({ taskSupport: oneOf('required', 'optional', 'forbidden') }),
    },
    ['inputSchema'],
  );
}

const LEGACY_TOOL = toolShape(OBJECT_SCHEMA);
const MODERN_TOOL = toolShape(ANY_SCHEMA);

const IDENTIFIER = text((value) => !hasUnseen(value));
const ARGUMENT = object({ name: IDENTIFIER, title: STRING, description: STRING, required: BOOLEAN }, ['name']);
const SIZE: Shape = { kind: 'scalar', accepts: Number.isSafeInteger };

const SHAPES: Readonly<Record<Exclude<ItemKind, 'tool'>, ObjectShape>> = {
  prompt: object({ ...COMMON, arguments: list(ARGUMENT) }),
  resource: object({ ...COMMON, name: STRING, mimeType: STRING, size: SIZE, annotations: ANNOTATIONS }, ['name']),
  template: object({ ...COMMON, name: STRING, mimeType: STRING, annotations: ANNOTATIONS }, ['name']),
};

/** Returns the shape of an item without its key (`name`, `uri` or `uriTemplate`), which `item.ts` checks. */
export function shapeOf(kind: ItemKind, isModern: boolean): ObjectShape {
  if (kind === 'tool') return isModern ? MODERN_TOOL : LEGACY_TOOL;
  return SHAPES[kind];
}

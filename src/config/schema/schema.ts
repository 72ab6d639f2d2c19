import { z } from 'zod';

import { gatewaySchema } from './gateway-schema.ts';
import { upstreamSchema } from './upstream-schema.ts';

const upstreams = (what: string) => z.record(z.string(), upstreamSchema).optional().describe(what);

/** Keys of the map of upstreams. A file may have at most one of them. */
export const MAP_KEYS = ['mcpServers', 'servers', 'mcp_servers', 'context_servers'] as const;

/** Keys of the map of upstreams in files without {@link MAP_KEYS}. In other files these keys have other meanings. */
export const WEAK_MAP_KEYS = ['mcp', 'extensions'] as const;

/** Schema of the whole file. `upstreams/top-level-keys.ts` judges unknown keys, since those of clients are allowed in their files. */
const fileSchema = z
  .looseObject({
    $schema: z.string().optional().describe('The JSON Schema of this file, for editors.'),
    mcpServers: upstreams('The upstreams, by name. The order is that of every list the gateway gives.'),
    servers: upstreams('`mcpServers`, as VS Code spells it.'),
    mcp_servers: upstreams('`mcpServers`, as Codex spells it.'),
    context_servers: upstreams('`mcpServers`, as Zed spells it.'),
    mcp: z.unknown().optional().describe('`mcpServers`, as OpenCode spells it.'),
    extensions: z.unknown().optional().describe('`mcpServers`, as Goose spells it.'),
    inputs: z
      .unknown()
      .optional()
      .describe('What VS Code asks for. Here ${input:id} is the environment variable INPUT_ID.'),
    gateway: gatewaySchema.optional().describe('Settings of the gateway itself. All have defaults.'),
  })
  .meta({
    title: 'Linkspan configuration',
    description:
      'Durations are text such as "30s" (ms, s, m, h, d), sizes text such as "4MiB" (B, KiB, MiB, GiB). Values may hold ' +
      '${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:/path}, ${input:id}, ${workspaceFolder}, ${userHome}, and $$ for a dollar sign.',
  });

const REFERENCE = '\\$\\{';

/** Types of values that a text with `${…}` may stand for. */
const REFERABLE_TYPES: ReadonlySet<unknown> = new Set(['integer', 'number', 'boolean']);

/** Allows text with `${…}` for every value, since its expansion is known only at start. */
function allowReferences(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map((item) => allowReferences(item));
  if (typeof schema !== 'object' || schema === null) return schema;
  const {
    description,
    default: fallback,
    ...rest
  } = Object.fromEntries(
    Object.entries(schema).map(([key, value]) => [key, key === 'default' ? value : allowReferences(value)]),
  );
  const about = {
    ...(description === undefined ? {} : { description }),
    ...(fallback === undefined ? {} : { default: fallback }),
  };
  if (typeof rest['pattern'] === 'string') {
    return { ...about, ...rest, pattern: `(?:${rest['pattern']})|${REFERENCE}` };
  }
  if (Array.isArray(rest['enum']) || REFERABLE_TYPES.has(rest['type'])) {
    return { ...about, anyOf: [rest, { type: 'string', pattern: REFERENCE }] };
  }
  return { ...about, ...rest };
}

/** Returns the JSON Schema of the config file, for editors. */
export function jsonSchema(): unknown {
  return allowReferences(z.toJSONSchema(fileSchema, { io: 'input' }));
}

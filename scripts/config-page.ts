/** Writes `docs/configuration.md`, the reference of the config file, from its JSON schema. `npm run schema` runs it. */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { jsonSchema } from '../src/config/schema/schema.ts';

/** The parts of a JSON schema that the page shows. */
interface Schema {
  readonly description?: string | undefined;
  readonly default?: unknown;
  readonly type?: string | readonly string[] | undefined;
  readonly pattern?: string | undefined;
  readonly const?: unknown;
  readonly enum?: readonly unknown[] | undefined;
  readonly minimum?: number | undefined;
  readonly maximum?: number | undefined;
  readonly anyOf?: readonly Schema[] | undefined;
  readonly items?: Schema | undefined;
  readonly properties?: Readonly<Record<string, Schema>> | undefined;
  readonly additionalProperties?: Schema | boolean | undefined;
  readonly not?: unknown;
  readonly $ref?: string | undefined;
}

const SCHEMA: z.ZodType<Schema> = z.looseObject({
  description: z.string().optional(),
  default: z.unknown().optional(),
  type: z.union([z.string(), z.array(z.string())]).optional(),
  pattern: z.string().optional(),
  const: z.unknown().optional(),
  enum: z.array(z.unknown()).optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  not: z.unknown().optional(),
  $ref: z.string().optional(),
  get anyOf() {
    return z.array(SCHEMA).optional();
  },
  get items() {
    return SCHEMA.optional();
  },
  get properties() {
    return z.record(z.string(), SCHEMA).optional();
  },
  get additionalProperties() {
    return z.union([z.boolean(), SCHEMA]).optional();
  },
});

const FILE = z.object({
  description: z.string(),
  properties: z.record(z.string(), SCHEMA),
  $defs: z.object({ upstream: SCHEMA }),
});

const HEAD = `# Configuration

<!-- \`npm run schema\` writes this page from the schemas in src/config/schema/. -->

Every setting of the config file. [config/reference.yaml](../config/reference.yaml) shows all of them in a file, and
[config/linkspan.schema.json](../config/linkspan.schema.json) lets editors complete and check them.
[The config of other clients](../README.md#configure) works unmodified.

`;

/** Returns a row of a table. Texts outside of code keep their angle brackets. */
function row(...cells: readonly string[]): string {
  const escaped = cells.map((cell) =>
    cell
      .replaceAll(/`[^`]*`|</g, (found) => (found === '<' ? '&lt;' : found))
      .replaceAll('|', '\\|')
      .replaceAll('\n', ' '),
  );
  return `| ${escaped.join(' | ')} |\n`;
}

/** True for a schema that accepts a variable in place of the value; every setting does. */
function isVariable({ type, pattern }: Schema): boolean {
  return type === 'string' && pattern === '\\$\\{';
}

/** Returns the values that a schema accepts, in words. */
function valuesOf(schema: Schema): string {
  const { anyOf, enum: values, items, type, pattern = '', minimum, maximum } = schema;
  if (anyOf !== undefined) {
    const each = anyOf.filter((one) => !isVariable(one)).map(valuesOf);
    return [...new Set(each)].filter((one) => one !== '').join(', ');
  }
  if ('const' in schema && schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``;
  if (values !== undefined) return values.map((value) => `\`${String(value)}\``).join(', ');
  if (pattern.includes('ms|s|m|h|d')) return 'duration';
  if (pattern.includes('KiB|MiB')) return 'size';
  if (type === 'array') return items === undefined ? 'list' : `list of ${valuesOf(items) || 'text'}`;
  if (type === 'object') return 'map';
  if (type === 'integer' || type === 'number') {
    return minimum === undefined || maximum === undefined ? 'number' : `${minimum} to ${maximum}`;
  }
  if (type === 'boolean') return '`true`, `false`';
  return type === 'string' ? 'text' : '';
}

/** Returns the maps inside of a schema: its own members, those of its list, or those of its variants. */
function membersOf(schema: Schema): Readonly<Record<string, Schema>> {
  const { properties, items, anyOf = [], additionalProperties } = schema;
  if (properties !== undefined) return properties;
  if (items !== undefined) return membersOf(items);
  if (typeof additionalProperties === 'object') {
    return Object.fromEntries(
      Object.entries(membersOf(additionalProperties)).map(([key, one]) => [`<name>.${key}`, one]),
    );
  }
  return anyOf.map(membersOf).find((found) => Object.keys(found).length > 0) ?? {};
}

/** Returns the rows of all settings below a place. */
function rowsOf(members: Readonly<Record<string, Schema>>, place: string): string {
  let rows = '';
  for (const [key, schema] of Object.entries(members)) {
    const { description, default: value } = schema;
    // Members of a spelling of another client have no description.
    if (schema.not !== undefined || description === undefined) continue;
    const path = `${place}${key}`;
    const inside = membersOf(schema);
    const hasDefault = value !== undefined && Object.keys(inside).length === 0;
    rows += row(`\`${path}\``, valuesOf(schema), hasDefault ? `\`${JSON.stringify(value)}\`` : '', description);
    rows += rowsOf(inside, valuesOf(schema).startsWith('list') ? `${path}[].` : `${path}.`);
  }
  return rows;
}

const COLUMNS = row('Setting', 'Values', 'Default', 'Meaning') + row('---', '---', '---', '---');

/** Descriptions of keys that only files of other clients have. */
const FOREIGN = /^`|own setting|as \w+(?: \w+)? spells? (?:it|them)/;

/** Returns the text of the page. */
export function configPage(): string {
  const { description, properties, $defs } = FILE.parse(jsonSchema());
  const { gateway = {}, ...others } = properties;
  const upstream = Object.entries(membersOf($defs.upstream));
  const isForeign = ([, schema]: readonly [string, Schema]) => FOREIGN.test(schema.description ?? '');
  const own = Object.fromEntries(upstream.filter((entry) => !isForeign(entry)));
  const foreign = upstream.filter(isForeign);
  return [
    `${HEAD}${description}\n`,
    '## The file\n',
    `${row('Key', 'Meaning')}${row('---', '---')}${Object.entries({ ...others, gateway })
      .map(([key, one]) => row(`\`${key}\``, one.description ?? ''))
      .join('')}`,
    '## An upstream\n',
    `The keys of one entry of \`mcpServers\`.\n`,
    `${COLUMNS}${rowsOf(own, '')}`,
    'Keys of the files of other clients:\n',
    `${row('Key', 'Meaning')}${row('---', '---')}${foreign.map(([key, one]) => row(`\`${key}\``, one.description ?? '')).join('')}`,
    '## The gateway\n',
    'The keys of `gateway`.\n',
    `${COLUMNS}${rowsOf(membersOf(gateway), '')}`,
  ].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../docs/configuration.md', import.meta.url), configPage());
}

import type { RawObject } from '../json/json.ts';
import { isMalformed } from '../json/malformed.ts';
import { canonicalText } from './canonical.ts';
import { hiddenCharacters } from './hidden-characters.ts';
import { imperatives } from './imperative-text.ts';
import { getOrMake } from '../map-entries.ts';
import { inSlices } from '../work-turn.ts';

export const LISTED_KINDS = ['tool', 'prompt', 'resource', 'template'] as const;
export type ListedKind = (typeof LISTED_KINDS)[number];

/** The kinds of pinned texts: items of lists, and the instructions of the server. */
export type DefinitionKind = ListedKind | 'instructions';

/** The lists of an upstream as it sent them. */
export interface Listed {
  readonly tools: readonly RawObject[];
  readonly prompts: readonly RawObject[];
  readonly resources: readonly RawObject[];
  readonly templates: readonly RawObject[];
  readonly instructions: string | undefined;
}

export interface Definition {
  readonly kind: DefinitionKind;
  /** The name, URI or URI template of the item, as the upstream spells it. Empty for instructions. */
  readonly key: string;
  /** Canonical JSON text without the key. Empty if the item is no JSON that can be pinned; no other definition equals it then. */
  readonly text: string;
}

/** The list of each kind; also its member in the lock file. */
export const LIST_NAMES = {
  tool: 'tools',
  prompt: 'prompts',
  resource: 'resources',
  template: 'templates',
} as const satisfies Record<ListedKind, keyof Listed>;

const KEYS: Readonly<Record<ListedKind, string>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  template: 'uriTemplate',
};

/** Members of a resource without text for a model. They change with its content. */
const DATA: ReadonlySet<string> = new Set(['uri', 'uriTemplate', 'name', 'mimeType', 'size', 'annotations']);

/** Definitions by item. Items are immutable, and many connections share them. */
const known = new WeakMap<RawObject, Definition | 'unpinned'>();

/** Returns a text that is equal only for definitions of the same kind with the same key. */
export function idOf({ kind, key }: Pick<Definition, 'kind' | 'key'>): string {
  return `${kind} ${key}`;
}

/**
 * Returns the definition of an item; undefined for a resource or template that has no text for a model. Such items come and go
 * with the data of a server.
 */
function definitionOf(kind: ListedKind, item: RawObject): Definition | undefined {
  const definition = getOrMake(known, item, () => read(kind, item) ?? 'unpinned');
  return definition === 'unpinned' ? undefined : definition;
}

function read(kind: ListedKind, item: RawObject): Definition | undefined {
  let key = '';
  try {
    key = item.string(KEYS[kind]) ?? '';
    if ((kind === 'resource' || kind === 'template') && !hasText(item)) return undefined;
    const rest = item.with(KEYS[kind], undefined);
    const pinned = kind === 'resource' || kind === 'template' ? withoutVolatile(rest) : rest;
    return { kind, key, text: canonicalText(pinned.toString()) };
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    return { kind, key, text: '' };
  }
}

/** Returns whether a resource or template has members that tell a model more than where its data is. */
function hasText(item: RawObject): boolean {
  if (item.keys().some((name) => !DATA.has(name))) return true;
  const labels = [item.string('name') ?? '', item.string('uri') ?? '', item.string('uriTemplate') ?? ''].join(' ');
  return imperatives(labels).length > 0 || hiddenCharacters(labels).length > 0;
}

/** Leaves out the members that change with the content of a resource. */
function withoutVolatile(item: RawObject): RawObject {
  const annotations = item.object('annotations')?.with('lastModified', undefined);
  const rest = item.with('size', undefined);
  if (annotations === undefined) return rest;
  return rest.with('annotations', annotations.size === 0 ? undefined : annotations.toString());
}

/** Reads the definitions of these lists over several turns of the event loop, so that {@link definitionsOf} finds them. */
export async function readDefinitions(listed: Listed): Promise<void> {
  for (const kind of LISTED_KINDS) await inSlices(listed[LIST_NAMES[kind]], (item) => definitionOf(kind, item));
}

/**
 * Returns the definitions of these lists by {@link idOf}, in the order of the lists. Several items with one name are several
 * definitions.
 */
export function definitionsOf(listed: Listed): ReadonlyMap<string, readonly Definition[]> {
  const definitions = new Map<string, Definition[]>();
  const add = (definition: Definition | undefined) => {
    if (definition !== undefined) getOrMake(definitions, idOf(definition), () => []).push(definition);
  };
  const { instructions = '' } = listed;
  if (instructions.trim() !== '') add({ kind: 'instructions', key: '', text: JSON.stringify(instructions) });
  for (const kind of LISTED_KINDS) for (const item of listed[LIST_NAMES[kind]]) add(definitionOf(kind, item));
  return definitions;
}

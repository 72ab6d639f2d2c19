import { hash } from 'node:crypto';
import { RawObject, rawItems } from '../json/json.ts';
import type { ItemKind } from './item.ts';
import { type Caching, isCaching } from './caching.ts';
import { isMalformed } from './malformed.ts';

/** What one upstream advertises, in its own words and order. Immutable. */
export interface Offer {
  readonly revision: string;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  readonly instructions: string | undefined;
  readonly tools: readonly RawObject[];
  readonly prompts: readonly RawObject[];
  readonly resources: readonly RawObject[];
  readonly templates: readonly RawObject[];
  /** What it says of how long its lists hold, and for whom; undefined where it says nothing. */
  readonly caching?: Caching | undefined;
  /** Entries of its lists that are not even objects. */
  readonly unreadable?: readonly Unreadable[];
}

export interface Unreadable {
  readonly kind: ItemKind;
  /** Position in the list or page, from 0. */
  readonly position: number;
  readonly why: string;
}

/** What `list_changed` can be about. Resource templates count as resources. */
export const LIST_KINDS = ['tools', 'prompts', 'resources'] as const;
export type ListKind = (typeof LIST_KINDS)[number];

export const EMPTY_OFFER: Offer = {
  revision: '',
  capabilities: RawObject.EMPTY,
  serverInfo: RawObject.EMPTY,
  instructions: undefined,
  tools: [],
  prompts: [],
  resources: [],
  templates: [],
};

/** Cuts one list of one page into its items; a bad entry is set aside and the rest goes on. @throws {JsonTextError} when it is no array. */
export function readItems(
  kind: ItemKind,
  arrayText: string,
): { readonly items: readonly RawObject[]; readonly unreadable: readonly Unreadable[] } {
  const items: RawObject[] = [];
  const unreadable: Unreadable[] = [];
  for (const [position, text] of rawItems(arrayText).entries()) {
    try {
      items.push(RawObject.parse(text));
    } catch (thrown) {
      if (!isMalformed(thrown)) throw thrown;
      unreadable.push({ kind, position, why: text.startsWith('{') ? 'is not well-formed JSON' : 'is not an object' });
    }
  }
  return { items, unreadable };
}

function isSame(a: readonly RawObject[], b: readonly RawObject[]): boolean {
  return a === b || (a.length === b.length && a.every((item, i) => item.toString() === b[i]?.toString()));
}

/** Which lists differ from before, where nothing known before means empty lists. */
export function changedKinds(before: Offer | undefined, after: Offer): readonly ListKind[] {
  const known = before ?? EMPTY_OFFER;
  const changed: ListKind[] = [];
  if (!isSame(known.tools, after.tools)) changed.push('tools');
  if (!isSame(known.prompts, after.prompts)) changed.push('prompts');
  if (!isSame(known.resources, after.resources) || !isSame(known.templates, after.templates)) changed.push('resources');
  return changed;
}

/** Changed when what the file holds would be read differently by us. */
const FORMAT = '1';

function array(items: readonly RawObject[]): string {
  return `[${items.join(',')}]`;
}

function body(offer: Offer): string {
  const { revision, instructions, unreadable, caching } = offer;
  return RawObject.of({ revision, instructions, unreadable, caching })
    .with('capabilities', offer.capabilities.toString())
    .with('serverInfo', offer.serverInfo.toString())
    .with('tools', array(offer.tools))
    .with('prompts', array(offer.prompts))
    .with('resources', array(offer.resources))
    .with('templates', array(offer.templates))
    .toString();
}

export function sameOffer(a: Offer, b: Offer): boolean {
  return a === b || body(a) === body(b);
}

/** The last good offer as a file keeps it. */
export function offerText(offer: Offer): string {
  const text = body(offer);
  return `{"format":${FORMAT},"sha256":"${hash('sha256', text)}","offer":${text}}`;
}

function readUnreadable(offer: RawObject): readonly Unreadable[] {
  return rawItems(offer.raw('unreadable') ?? '[]').map((text) => {
    const entry = RawObject.parse(text);
    const kind = entry.string('kind');
    return {
      kind: kind === 'prompt' || kind === 'resource' || kind === 'template' ? kind : 'tool',
      position: Number(entry.raw('position')),
      why: entry.string('why') ?? '',
    };
  });
}

/** Reads what {@link offerText} wrote. Undefined for a damaged file or one of another format: the upstream will be asked. */
export function parseOffer(text: string): Offer | undefined {
  try {
    const file = RawObject.parse(text);
    const content = file.raw('offer');
    if (file.raw('format') !== FORMAT || content === undefined) return undefined;
    if (file.string('sha256') !== hash('sha256', content)) return undefined;
    const offer = RawObject.parse(content);
    const items = (key: string): RawObject[] => rawItems(offer.raw(key) ?? '').map((item) => RawObject.parse(item));
    const unreadable = readUnreadable(offer);
    const caching = offer.value('caching');
    return {
      revision: offer.string('revision') ?? '',
      capabilities: offer.object('capabilities') ?? RawObject.EMPTY,
      serverInfo: offer.object('serverInfo') ?? RawObject.EMPTY,
      instructions: offer.string('instructions'),
      tools: items('tools'),
      prompts: items('prompts'),
      resources: items('resources'),
      templates: items('templates'),
      ...(isCaching(caching) ? { caching } : {}),
      ...(unreadable.length > 0 ? { unreadable } : {}),
    };
  } catch (thrown) {
    if (isMalformed(thrown)) return undefined;
    throw thrown;
  }
}

import { hash } from 'node:crypto';
import { RawObject, rawItems } from '../json/json.ts';
import { LIMITS, type LimitName } from '../limits.ts';
import { detach } from '../json/memo.ts';
import { keyOf } from './item.ts';
import type { ItemKind } from './items/kind.ts';
import { type Caching, isCaching } from './caching.ts';
import { isMalformed } from './malformed.ts';
import { Shared } from './shared.ts';

/** The lists and the hello of one upstream, in its own words and order. Immutable. */
export interface Offer {
  readonly revision: string;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  readonly instructions: string | undefined;
  readonly tools: readonly RawObject[];
  readonly prompts: readonly RawObject[];
  readonly resources: readonly RawObject[];
  readonly templates: readonly RawObject[];
  /** How long its lists hold, and for whom; undefined where it says nothing. */
  readonly caching?: Caching | undefined;
  /** Entries of its lists that are not objects, or too large. */
  readonly unreadable?: readonly Unreadable[];
}

export interface Unreadable {
  readonly kind: ItemKind;
  /** Position in the list or page, from 0. */
  readonly position: number;
  /** Its name, URI or URI template, where it has one. */
  readonly name?: string | undefined;
  readonly why: string;
  readonly limit?: LimitName | undefined;
}

/** The kinds of lists that `list_changed` tells of. Resource templates count as resources. */
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

/**
 * Cuts one list of one page into its items, which do not hold on to the text of the page. A bad entry is recorded, and the
 * rest goes on.
 *
 * @throws {JsonTextError} when it is no array.
 */
export function readItems(
  kind: ItemKind,
  arrayText: string,
): { readonly items: readonly RawObject[]; readonly unreadable: readonly Unreadable[] } {
  const items: RawObject[] = [];
  const unreadable: Unreadable[] = [];
  for (const [position, text] of rawItems(arrayText).entries()) {
    try {
      if (Buffer.byteLength(text) > LIMITS.listItemBytes) unreadable.push(tooLarge(kind, position, text));
      else items.push(RawObject.parse(detach(text)).compacted());
    } catch (thrown) {
      if (!isMalformed(thrown)) throw thrown;
      unreadable.push({ kind, position, why: text.startsWith('{') ? 'is not well-formed JSON' : 'is not an object' });
    }
  }
  return { items, unreadable };
}

/** The record of an entry that is not kept for its size. @throws {JsonTextError} */
function tooLarge(kind: ItemKind, position: number, text: string): Unreadable {
  const name = detach(keyOf(kind, RawObject.parse(text)).slice(0, MAX_NAME_CHARS));
  const why = `has ${Buffer.byteLength(text)} bytes, and ${LIMITS.listItemBytes} are read`;
  return { kind, position, name, why, limit: 'listItemBytes' };
}

function isSame(a: readonly RawObject[], b: readonly RawObject[]): boolean {
  return a === b || (a.length === b.length && a.every((item, i) => item.toString() === b[i]?.toString()));
}

/** Returns the lists that differ from those before; without an offer before, those that are not empty. */
export function changedKinds(before: Offer | undefined, after: Offer): readonly ListKind[] {
  const known = before ?? EMPTY_OFFER;
  const changed: ListKind[] = [];
  if (!isSame(known.tools, after.tools)) changed.push('tools');
  if (!isSame(known.prompts, after.prompts)) changed.push('prompts');
  if (!isSame(known.resources, after.resources) || !isSame(known.templates, after.templates)) changed.push('resources');
  return changed;
}

/** The format of an offer's file. Another number makes older files unreadable. */
const FORMAT = '1';

/** Characters kept of the name of an entry that is not kept. */
const MAX_NAME_CHARS = 200;

function array(items: readonly RawObject[]): string {
  return `[${items.join(',')}]`;
}

function body(offer: Offer): string {
  const { revision, instructions, caching } = offer;
  // Absent and empty are the same, whether the offer comes from an upstream or from its file.
  const unreadable = offer.unreadable?.length === 0 ? undefined : offer.unreadable;
  return RawObject.of({ revision, instructions, unreadable, caching })
    .with('capabilities', offer.capabilities.toString())
    .with('serverInfo', offer.serverInfo.toString())
    .with('tools', array(offer.tools))
    .with('prompts', array(offer.prompts))
    .with('resources', array(offer.resources))
    .with('templates', array(offer.templates))
    .toString();
}

const lists = new Shared<readonly RawObject[]>();
const offers = new Shared<Offer>();

function sharedList(items: readonly RawObject[]): { readonly list: readonly RawObject[]; readonly digest: string } {
  const digest = hash('sha256', array(items));
  return { list: lists.get(digest, () => items), digest };
}

/**
 * Returns an equal offer with equal lists: the same objects for the same content, so that many connections to one server
 * hold its lists once.
 */
export function sharedOffer(offer: Offer): Offer {
  const [tools, prompts, resources, templates] = [
    sharedList(offer.tools),
    sharedList(offer.prompts),
    sharedList(offer.resources),
    sharedList(offer.templates),
  ];
  const rest = body({ ...offer, tools: [], prompts: [], resources: [], templates: [] });
  const digests = [tools, prompts, resources, templates].map(({ digest }) => digest);
  return offers.get(`${digests.join(' ')} ${hash('sha256', rest)}`, () => ({
    ...offer,
    tools: tools.list,
    prompts: prompts.list,
    resources: resources.list,
    templates: templates.list,
  }));
}

/** Whether two offers have the same content. */
export function sameOffer(a: Offer, b: Offer): boolean {
  return a === b || body(a) === body(b);
}

/** Returns the text of an offer's file. */
export function offerText(offer: Offer): string {
  const text = body(offer);
  return `{"format":${FORMAT},"sha256":"${hash('sha256', text)}","offer":${text}}`;
}

function readUnreadable(offer: RawObject): readonly Unreadable[] {
  return rawItems(offer.raw('unreadable') ?? '[]').map((text) => {
    const entry = RawObject.parse(text);
    const kind = entry.string('kind');
    const name = entry.string('name');
    return {
      kind: kind === 'prompt' || kind === 'resource' || kind === 'template' ? kind : 'tool',
      position: Number(entry.raw('position')),
      ...(name === undefined ? {} : { name }),
      why: entry.string('why') ?? '',
      ...(entry.string('limit') === 'listItemBytes' ? { limit: 'listItemBytes' } : {}),
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
    const items = (key: string): RawObject[] =>
      rawItems(offer.raw(key) ?? '').map((item) => RawObject.parse(detach(item)).compacted());
    const unreadable = readUnreadable(offer);
    const caching = offer.value('caching');
    return sharedOffer({
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
    });
  } catch (thrown) {
    if (isMalformed(thrown)) return undefined;
    throw thrown;
  }
}

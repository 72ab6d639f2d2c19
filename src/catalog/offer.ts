import { createHash, hash } from 'node:crypto';
import { RawObject, rawItems } from '../json/json.ts';
import { LIMITS, type LimitName } from '../limits.ts';
import { detach } from '../json/kept-text.ts';
import { pseudonymsIn } from '../protocol/meta.ts';
import { type Era, isModernRevision } from '../protocol/revisions.ts';
import { supportsToolTasks } from '../protocol/tasks.ts';
import type { Listed } from '../lock/definition.ts';
import { keyOf } from './item.ts';
import type { ItemKind } from './items/kind.ts';
import { type Caching, isCaching } from './caching.ts';
import { isMalformed, unlessMalformed } from '../json/malformed.ts';
import { WeakCache } from './weak-cache.ts';

/** The lists, capabilities and server info of one upstream, as it sent them, in its order. Immutable. */
export interface Offer extends Listed {
  readonly revision: string;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  /** The time for which the lists may be cached, and for whom; undefined if the upstream does not say. */
  readonly caching?: Caching | undefined;
  /** Entries of the lists that are not objects, or too large, and lists that cannot be read as a whole. */
  readonly unreadable?: readonly Unreadable[] | undefined;
  /** Pseudonyms of the gateway endpoints that the lists have come through; undefined for none. */
  readonly endpoints?: readonly string[] | undefined;
  /** The reason why the lists are refused, which are empty then; see {@link refusedOffer}. Never stored. */
  readonly refusal?: Refusal;
  /** Items that the upstream lists and the lock withholds; see `pinned-offer.ts`. Never stored. */
  readonly withheld?: readonly Withheld[];
  /** True if the lock refuses the whole upstream. */
  readonly isRefused?: boolean;
}

/** Returns whether the upstream has tasks of 2025-11-25, which clients of the tasks extension get as its tasks. */
export function hasCoreTasks({ revision, capabilities }: Offer): boolean {
  return !isModernRevision(revision) && unlessMalformed(() => supportsToolTasks(capabilities), false);
}

/** The record of an item that the lock withholds. */
export interface Withheld {
  readonly kind: ItemKind;
  /** The upstream's own name, URI or URI template. */
  readonly key: string;
  /** The reason in words: completes "the item …". */
  readonly why: string;
}

/** The reason why all lists of an upstream are refused, in words, and the fixed bound that they exceed. */
export interface Refusal {
  readonly why: string;
  readonly limit?: LimitName;
}

/** The clients that an offer is for. */
export interface OfferKey {
  /** The era in which the upstream was listed. */
  readonly era: Era;
  /** Empty for clients of any capabilities. */
  readonly capabilityKey: string;
  /** The key of the principal that the upstream was listed for; empty for all principals. */
  readonly audience: string;
}

/** Returns a text that is equal only for equal keys. */
export function offerKeyText({ era, capabilityKey, audience }: OfferKey): string {
  return `${era} ${capabilityKey} ${audience}`;
}

export function commonKey(era: Era): OfferKey {
  return { era, capabilityKey: '', audience: '' };
}

export function isCommonKey({ capabilityKey, audience }: OfferKey): boolean {
  return capabilityKey === '' && audience === '';
}

/** The record of a list entry that is not kept, or of a fault of a whole list. */
export interface Unreadable {
  readonly kind: ItemKind;
  /** Position in the list or page, counted from 0. */
  readonly position: number;
  /** The name, URI or URI template of the entry, if it can be read; of a whole list, its method. */
  readonly name?: string | undefined;
  readonly why: string;
  readonly limit?: LimitName | undefined;
}

/** The kinds of lists that have a `list_changed` notification. Resource templates count as resources. */
export const LIST_KINDS = ['tools', 'prompts', 'resources'] as const;
export type ListKind = (typeof LIST_KINDS)[number];

/** Returns the method of the notification that a list of a kind has changed. */
export function listChangedMethod(kind: ListKind): string {
  return `notifications/${kind}/list_changed`;
}

const CHANGED_KINDS: ReadonlyMap<string, ListKind> = new Map(LIST_KINDS.map((kind) => [listChangedMethod(kind), kind]));

/** Returns the kind of the lists that a notification reports as changed; undefined for any other method. */
export function changedKindOf(method: string): ListKind | undefined {
  return CHANGED_KINDS.get(method);
}

export const LIST_MEMBERS = ['tools', 'prompts', 'resources', 'templates'] as const;
export type ListMember = (typeof LIST_MEMBERS)[number];

/** Returns a value for each list. */
export function perList<Value>(make: (list: ListMember) => Value): Readonly<Record<ListMember, Value>> {
  return { tools: make('tools'), prompts: make('prompts'), resources: make('resources'), templates: make('templates') };
}

const NO_LISTS = perList((): readonly RawObject[] => []);

/** An offer without lists and capabilities. */
export const EMPTY_OFFER: Offer = {
  revision: '',
  capabilities: RawObject.EMPTY,
  serverInfo: RawObject.EMPTY,
  instructions: undefined,
  ...NO_LISTS,
};

const refusedOffers = new WeakMap<Offer, Offer>();

/** Returns an offer of nothing in the place of another one: the same object for the same offer and reason. */
export function refusedOffer(offer: Offer, refusal: Refusal): Offer {
  const known = refusedOffers.get(offer);
  if (known?.refusal?.why === refusal.why) return known;
  const { revision, serverInfo, caching } = offer;
  const made = { ...EMPTY_OFFER, revision, serverInfo, caching, refusal };
  refusedOffers.set(offer, made);
  return made;
}

/**
 * Reads items of one page. They do not keep the text of the page in memory. A bad entry is recorded, and the other entries are
 * read.
 *
 * @param texts JSON texts of entries that follow each other.
 * @param start the position of the first one.
 */
export function readItems(
  kind: ItemKind,
  texts: readonly string[],
  start = 0,
): { readonly items: readonly RawObject[]; readonly unreadable: readonly Unreadable[] } {
  const items: RawObject[] = [];
  const unreadable: Unreadable[] = [];
  for (const [index, text] of texts.entries()) {
    const position = start + index;
    if (!text.startsWith('{')) {
      unreadable.push({ kind, position, why: 'is not an object' });
      continue;
    }
    try {
      if (Buffer.byteLength(text) > LIMITS.listItemBytes) unreadable.push(tooLarge(kind, position, text));
      else items.push(RawObject.parse(detach(text)).compacted());
    } catch (thrown) {
      if (!isMalformed(thrown)) throw thrown;
      unreadable.push({ kind, position, why: 'is not well-formed JSON' });
    }
  }
  return { items, unreadable };
}

/** Returns the record of an entry that exceeds `LIMITS.listItemBytes`. @throws {JsonTextError} */
function tooLarge(kind: ItemKind, position: number, text: string): Unreadable {
  const name = detach(keyOf(kind, RawObject.parse(text)).slice(0, MAX_NAME_CHARS));
  const why = `has ${Buffer.byteLength(text)} bytes, and ${LIMITS.listItemBytes} are read`;
  return { kind, position, name, why, limit: 'listItemBytes' };
}

function haveSameItems(a: readonly RawObject[], b: readonly RawObject[]): boolean {
  return a === b || (a.length === b.length && a.every((item, i) => item.toString() === b[i]?.toString()));
}

/** The format of an offer's file. {@link parseOffer} ignores files with another number. */
const FORMAT = '1';

/** The number of characters that {@link Unreadable} keeps of a name. */
const MAX_NAME_CHARS = 200;

function offerBody(offer: Offer): string {
  const { revision, instructions, caching, endpoints } = offer;
  // An absent and an empty list are equal, so that an offer equals the one restored from its file.
  const unreadable = offer.unreadable?.length === 0 ? undefined : offer.unreadable;
  let body = RawObject.of({ revision, instructions, unreadable, caching, endpoints })
    .with('capabilities', offer.capabilities.toString())
    .with('serverInfo', offer.serverInfo.toString());
  for (const list of LIST_MEMBERS) body = body.with(list, `[${offer[list].join(',')}]`);
  return body.toString();
}

const lists = new WeakCache<readonly RawObject[]>();
const offers = new WeakCache<Offer>();

/** The digest of the items of a list, which are added part by part. */
export class ListDigest {
  readonly #hash = createHash('sha256');

  static of(items: readonly RawObject[]): ListDigest {
    const digest = new ListDigest();
    digest.add(items);
    return digest;
  }

  add(items: readonly RawObject[]): void {
    if (items.length > 0) this.#hash.update(`${items.join(',')},`);
  }

  /** Returns the digest of the items so far, in hexadecimal. */
  toString(): string {
    return this.#hash.copy().digest('hex');
  }
}

/** Returns the text of an offer without its lists. */
function restText(offer: Offer): string {
  return offerBody({ ...offer, ...NO_LISTS });
}

/**
 * Returns the same offer object for offers with the same content, and the same arrays for lists with the same content. So many connections
 * to one server hold its lists once.
 *
 * @param digests of all items of the lists.
 */
export function sharedOffer(offer: Offer, digests = perList((list) => ListDigest.of(offer[list]))): Offer {
  const { tools, prompts, resources, templates } = digests;
  const key = [tools, prompts, resources, templates, hash('sha256', restText(offer))].join(' ');
  return offers.get(key, () => ({
    ...offer,
    ...perList((list) => lists.get(digests[list].toString(), () => offer[list])),
  }));
}

/**
 * Returns whether two offers have the same content for clients. Lists with the same content are mostly the same arrays. The endpoints
 * before them may differ: that of a gateway which ends with its client has another pseudonym each time. So may the time for which clients
 * may keep the lists, as a gateway states what is left of it. No time at all is another content.
 */
export function isSameOffer(a: Offer, b: Offer): boolean {
  const text = (offer: Offer) => {
    const caching = offer.caching && { ...offer.caching, ttlMs: Math.sign(offer.caching.ttlMs) };
    return restText({ ...offer, caching, endpoints: undefined });
  };
  return a === b || (LIST_MEMBERS.every((list) => haveSameItems(a[list], b[list])) && text(a) === text(b));
}

/** Returns the text of an offer's file. */
export function offerText(offer: Offer): string {
  const text = offerBody(offer);
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

/** Parses an offer's file. Returns undefined if it is damaged or has another format: the upstream is listed again. */
export function parseOffer(text: string): Offer | undefined {
  return unlessMalformed(() => {
    const file = RawObject.parse(text);
    const content = file.raw('offer');
    if (file.raw('format') !== FORMAT || content === undefined) return undefined;
    if (file.string('sha256') !== hash('sha256', content)) return undefined;
    const offer = RawObject.parse(content);
    const items = (key: ListMember): RawObject[] =>
      rawItems(offer.raw(key) ?? '').map((item) => RawObject.parse(detach(item)).compacted());
    const unreadable = readUnreadable(offer);
    const caching = offer.value('caching');
    const endpoints = pseudonymsIn(offer.value('endpoints'));
    const instructions = offer.string('instructions');
    return sharedOffer({
      revision: offer.string('revision') ?? '',
      capabilities: offer.object('capabilities')?.detached() ?? RawObject.EMPTY,
      serverInfo: offer.object('serverInfo')?.detached() ?? RawObject.EMPTY,
      instructions: instructions === undefined ? undefined : detach(instructions),
      ...perList(items),
      ...(isCaching(caching) ? { caching } : {}),
      ...(unreadable.length > 0 ? { unreadable } : {}),
      ...(endpoints.length > 0 ? { endpoints } : {}),
    });
  }, undefined);
}

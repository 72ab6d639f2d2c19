import type { ItemKind } from '../../catalog/items/kind.ts';
import { type Caching, combineCaching, readCaching } from '../../catalog/caching.ts';
import {
  LIST_MEMBERS,
  ListDigest,
  type ListMember,
  type Offer,
  perList,
  readItems,
  sharedOffer,
  type Unreadable,
} from '../../catalog/offer.ts';
import { GatewayError } from '../../errors.ts';
import { JsonTextError, rawItems, RawObject } from '../../json/json.ts';
import { detach, KeptSet } from '../../json/kept-text.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { shownText } from '../../peer-text.ts';
import { endpointsOf } from '../../protocol/meta.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { isRefusedAsUnknown } from './era-evidence.ts';
import type { Link } from './link.ts';
import { workTurn } from '../../work-turn.ts';

interface ListItems {
  readonly items: readonly RawObject[];
  readonly digest: ListDigest;
  readonly unreadable: readonly Unreadable[];
  readonly caching: Caching | undefined;
  /** As in an offer, at least. */
  readonly endpoints: readonly string[];
}

const EMPTY_LIST: ListItems = {
  items: [],
  digest: ListDigest.of([]),
  unreadable: [],
  caching: undefined,
  endpoints: [],
};

/** The number of entries of a page that are read at once, which takes a few ms. */
const PART_ENTRIES = 250;

/** Bounds that the four lists of one listing share. */
interface ListingBounds {
  bytesLeft: number;
  itemsLeft: number;
  /** Monotonic ms. */
  readonly dueMs: number;
}

export interface ListingOptions {
  /** Capabilities of the clients that the lists are for. Sent to modern upstreams only. */
  readonly capabilities: RawObject;
  /** Longest time for all pages of all lists, in milliseconds. */
  readonly timeoutMs: number;
  /** Called if the listing was cut off at this limit. */
  readonly onLimit: (limit: LimitName) => void;
  readonly onListed: (durationMs: number) => void;
  /** Returns the lists that the clients have now, if any. A list that cannot be read is taken from them. */
  readonly known: () => Offer | undefined;
}

export interface Listing {
  readonly offer: Offer;
  /** The reason why one of the lists could not be read; undefined if all were. */
  readonly failure: GatewayError | undefined;
}

/** The capability that declares a list, its method, the member of its result with the items, and their kind. */
interface List {
  readonly capability: string;
  readonly method: string;
  readonly member: string;
  readonly kind: ItemKind;
}

/** Reads all pages of one list. Stops at a repeated cursor or a bound, and keeps the items before it. */
async function readList(
  { connection, era }: Pick<Link, 'connection' | 'era'>,
  { method, member, kind }: List,
  { capabilities, onLimit }: ListingOptions,
  budget: ListingBounds,
): Promise<ListItems> {
  const items: RawObject[] = [];
  const digest = new ListDigest();
  const unreadable: Unreadable[] = [];
  const cursors = new KeptSet();
  let cursor: string | undefined;
  let before: string | undefined;
  let caching: Caching | undefined;
  const endpoints: string[] = [];
  const leaveOutRest = (limit: LimitName) => {
    onLimit(limit);
    const why = `is left out, and all after it: the lists are larger than ${describeLimit(limit)}`;
    unreadable.push({ kind, position: items.length, why });
  };
  for (let page = 1; ; page++) {
    const timeoutMs = Math.max(1, budget.dueMs - performance.now());
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined, capabilities };
    const params = cursor === undefined ? undefined : RawObject.EMPTY.with('cursor', cursor);
    const answer = await connection.call(method, params, options).answer;
    await workTurn();
    if (answer.kind === 'error') {
      // Some servers declare resources without implementing the list of templates.
      if (answer.error.code === RPC.methodNotFound) break;
      throw new GatewayError('upstream-protocol', {
        upstream: connection.upstream,
        message: `${method} failed: ${answer.error.message} (${answer.error.code})`,
      });
    }
    budget.bytesLeft -= Buffer.byteLength(answer.result);
    const limit = budget.bytesLeft < 0 ? 'listingBytes' : undefined;
    const result = limit === undefined ? RawObject.parse(answer.result) : RawObject.EMPTY;
    if (era === 'modern') assertIsList(connection.upstream, method, result);
    addNew(endpoints, endpointsOf(result));
    const list = result.raw(member) ?? '[]';
    // A server that takes an empty cursor for none sends its first page again.
    if (cursor !== undefined && result.raw('nextCursor') === cursor && list === before) break;
    before = list;
    // Servers in Go send null for an empty list.
    const isNull = list === 'null';
    if (isNull) unreadable.push({ kind, position: 0, name: method, why: 'the list is null, which counts as empty' });
    const entries = isNull ? [] : rawItems(list, Math.max(0, budget.itemsLeft));
    for (let start = 0; start < entries.length && budget.itemsLeft >= 0; start += PART_ENTRIES) {
      if (start > 0) await workTurn();
      const read = readItems(kind, entries.slice(start, start + PART_ENTRIES), start);
      const kept = read.items.slice(0, Math.max(0, budget.itemsLeft));
      items.push(...kept);
      digest.add(kept);
      budget.itemsLeft -= read.items.length + read.unreadable.length;
      unreadable.push(...read.unreadable);
    }
    const reached = limit ?? (budget.itemsLeft < 0 ? 'listingItems' : undefined);
    if (reached !== undefined) {
      leaveOutRest(reached);
      break;
    }
    caching = narrowest([caching, readCaching(result)]);
    cursor = result.string('nextCursor') === undefined ? undefined : result.raw('nextCursor');
    if (cursor === undefined && (result.raw('nextCursor') ?? 'null') !== 'null') {
      const why = 'the items after the first pages are left out, since "nextCursor" is not a string';
      unreadable.push({ kind, position: items.length, name: method, why });
    }
    if (cursor === undefined || cursors.has(cursor)) break;
    if (page === LIMITS.listingPages) {
      leaveOutRest('listingPages');
      break;
    }
    cursors.add(detach(cursor));
  }
  return { items, digest, unreadable, caching, endpoints };
}

/** @throws {GatewayError} `upstream-protocol`: a result of another type has no list. */
function assertIsList(upstream: string, method: string, result: RawObject): void {
  const type = result.raw('resultType') ?? '"complete"';
  if (type === '"complete"') return;
  const message = `${method} was answered with the resultType ${shownText(type)}, which is no list`;
  throw new GatewayError('upstream-protocol', { upstream, message });
}

/** Adds pseudonyms that are not in a list yet, until there are too many. */
function addNew(all: string[], endpoints: readonly string[]): void {
  for (const one of endpoints) if (all.length <= LIMITS.listEndpoints && !all.includes(one)) all.push(one);
}

function describeLimit(limit: LimitName): string {
  if (limit === 'listingBytes') return `${LIMITS.listingBytes / 2 ** 20} MiB`;
  return limit === 'listingItems' ? `${LIMITS.listingItems} items` : `${LIMITS.listingPages} pages`;
}

function narrowest(cachings: readonly (Caching | undefined)[]): Caching | undefined {
  const known = cachings.filter((one) => one !== undefined);
  return known.length === 0 ? undefined : known.reduce(combineCaching);
}

const LISTS = {
  tools: { capability: 'tools', method: 'tools/list', member: 'tools', kind: 'tool' },
  prompts: { capability: 'prompts', method: 'prompts/list', member: 'prompts', kind: 'prompt' },
  resources: { capability: 'resources', method: 'resources/list', member: 'resources', kind: 'resource' },
  templates: {
    capability: 'resources',
    method: 'resources/templates/list',
    member: 'resourceTemplates',
    kind: 'template',
  },
} as const satisfies Record<ListMember, List>;

/** Returns the last known items of a list that cannot be read, with a record of that. Its words do not change from one failure to the next. */
function knownList({ method, kind }: List, items: readonly RawObject[]): ListItems {
  const why = 'the list cannot be read, so the last known items stay';
  return { ...EMPTY_LIST, items, digest: ListDigest.of(items), unreadable: [{ kind, position: 0, name: method, why }] };
}

/**
 * Reads all lists that the upstream has declared over one connection, with all pages, within the bounds of a listing. Items
 * beyond a bound are left out, and `unreadable` says so. A list that cannot be read does not hide the others.
 *
 * @throws {GatewayError} if none of the lists can be read, or the connection has closed.
 */
export async function listOffer(link: Link, options: ListingOptions): Promise<Listing> {
  const { connection, hello } = link;
  const beganMs = performance.now();
  const budget: ListingBounds = {
    bytesLeft: LIMITS.listingBytes,
    itemsLeft: LIMITS.listingItems,
    dueMs: beganMs + options.timeoutMs,
  };
  const failures: GatewayError[] = [];
  const missing: GatewayError[] = [];
  let readLists = 0;
  const read = async (name: ListMember): Promise<ListItems | undefined> => {
    const list = LISTS[name];
    if (hello.capabilities.raw(list.capability) === undefined) return EMPTY_LIST;
    try {
      const items = await readList(link, list, options, budget);
      readLists++;
      return items;
    } catch (thrown) {
      const failure = listFailure(thrown, list, connection.upstream);
      // Some servers declare what they do not have. A list that was there before comes back.
      const isMissing = isRefusedAsUnknown(failure) && name !== 'tools' && (options.known()?.[name] ?? []).length === 0;
      (isMissing ? missing : failures).push(failure);
      return isMissing ? EMPTY_LIST : undefined;
    }
  };
  const found = new Map(await Promise.all(LIST_MEMBERS.map(async (name) => [name, await read(name)] as const)));
  const failure = failures[0] ?? (readLists === 0 ? missing[0] : undefined);
  if (failure !== undefined && (readLists === 0 || connection.isClosed)) throw failure;
  const known = failure === undefined ? undefined : options.known();
  const lists = perList((name) => found.get(name) ?? knownList(LISTS[name], known?.[name] ?? []));
  const all = Object.values(lists);
  const endpoints: string[] = [];
  for (const list of all) addNew(endpoints, list.endpoints);
  options.onListed(performance.now() - beganMs);
  const offer: Offer = {
    ...hello,
    ...perList((name) => lists[name].items),
    caching: narrowest(all.map(({ caching }) => caching)),
    unreadable: all.flatMap(({ unreadable }) => unreadable),
    ...(endpoints.length > 0 ? { endpoints } : {}),
  };
  return {
    offer: sharedOffer(
      offer,
      perList((name) => lists[name].digest),
    ),
    failure,
  };
}

/** Returns the failure of a list. Rethrows an error of the program. */
function listFailure(thrown: unknown, { method }: List, upstream: string): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  if (!(thrown instanceof JsonTextError)) throw thrown;
  return new GatewayError(
    'upstream-protocol',
    { upstream, message: `${method}: sent a list that cannot be read` },
    thrown,
  );
}

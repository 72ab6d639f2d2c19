import type { ItemKind } from '../../catalog/items/kind.ts';
import { type Caching, combineCaching, readCaching } from '../../catalog/caching.ts';
import { ListDigest, type Offer, readItems, sharedOffer, type Unreadable } from '../../catalog/offer.ts';
import { GatewayError } from '../../errors.ts';
import { JsonTextError, rawItems, RawObject } from '../../json/json.ts';
import { detach, KeptSet } from '../../json/kept-text.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { Connection } from '../rpc/connection.ts';
import type { Link, LinkUser } from './link.ts';
import { workTurn } from '../../work-turn.ts';

/** All items of one list. */
interface ListItems {
  readonly items: readonly RawObject[];
  readonly digest: ListDigest;
  readonly unreadable: readonly Unreadable[];
  readonly caching: Caching | undefined;
}

const EMPTY_LIST: ListItems = { items: [], digest: ListDigest.of([]), unreadable: [], caching: undefined };

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
  readonly upstream: string;
  /** Capabilities of the clients that the lists are for. Sent to modern upstreams only. */
  readonly capabilities: RawObject;
  /** Longest time for all pages of all lists, in milliseconds. */
  readonly timeoutMs: number;
  /** Called if the listing was cut off at this limit. */
  readonly onLimit: (limit: LimitName) => void;
  /** Called when all lists were read, in this time. */
  readonly onListed: (durationMs: number) => void;
}

/** The method of a list, the member of its result with the items, and their kind. */
interface List {
  readonly method: string;
  readonly member: string;
  readonly kind: ItemKind;
}

/** Reads all pages of one list. Stops at a repeated cursor or a bound, and keeps the items before it. */
async function readList<Context>(
  connection: Connection<Context>,
  { method, member, kind }: List,
  { upstream, capabilities, onLimit }: ListingOptions,
  budget: ListingBounds,
): Promise<ListItems> {
  const items: RawObject[] = [];
  const digest = new ListDigest();
  const unreadable: Unreadable[] = [];
  const cursors = new KeptSet();
  let cursor: string | undefined;
  let caching: Caching | undefined;
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
        upstream,
        message: `${method} failed: ${answer.error.message} (${answer.error.code})`,
      });
    }
    const limit = exceeded(budget, Buffer.byteLength(answer.result));
    const result = limit === undefined ? RawObject.parse(answer.result) : RawObject.EMPTY;
    const entries = rawItems(result.raw(member) ?? '[]');
    for (let start = 0; start < entries.length && budget.itemsLeft >= 0; start += PART_ENTRIES) {
      if (start > 0) await workTurn();
      const read = readItems(kind, entries.slice(start, start + PART_ENTRIES), start);
      const kept = read.items.slice(0, Math.max(0, budget.itemsLeft));
      items.push(...kept);
      digest.add(kept);
      budget.itemsLeft -= read.items.length;
      unreadable.push(...read.unreadable);
    }
    const reached = limit ?? (budget.itemsLeft < 0 ? 'listingItems' : undefined);
    if (reached !== undefined) {
      leaveOutRest(reached);
      break;
    }
    const pageCaching = readCaching(result);
    caching =
      caching === undefined || pageCaching === undefined
        ? (pageCaching ?? caching)
        : combineCaching(caching, pageCaching);
    cursor = result.string('nextCursor') === undefined ? undefined : result.raw('nextCursor');
    if (cursor === undefined || cursors.has(cursor)) break;
    if (page === LIMITS.listingPages) {
      leaveOutRest('listingPages');
      break;
    }
    cursors.add(detach(cursor));
  }
  return { items, digest, unreadable, caching };
}

function exceeded(budget: ListingBounds, bytes: number): LimitName | undefined {
  budget.bytesLeft -= bytes;
  return budget.bytesLeft < 0 ? 'listingBytes' : undefined;
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
  tools: { method: 'tools/list', member: 'tools', kind: 'tool' },
  prompts: { method: 'prompts/list', member: 'prompts', kind: 'prompt' },
  resources: { method: 'resources/list', member: 'resources', kind: 'resource' },
  templates: { method: 'resources/templates/list', member: 'resourceTemplates', kind: 'template' },
} as const satisfies Record<string, List>;

/**
 * Reads all lists that the upstream has declared over one connection, with all pages, within the bounds of a listing. Items
 * beyond a bound are left out, and `unreadable` says so.
 *
 * @throws {GatewayError} if one of the lists cannot be read.
 */
export async function listOffer<Context, User extends LinkUser>(
  { connection, hello }: Link<Context, User>,
  options: ListingOptions,
): Promise<Offer> {
  const beganMs = performance.now();
  const budget: ListingBounds = {
    bytesLeft: LIMITS.listingBytes,
    itemsLeft: LIMITS.listingItems,
    dueMs: beganMs + options.timeoutMs,
  };
  const has = (capability: string) => hello.capabilities.raw(capability) !== undefined;
  const read = (capability: string, list: List) =>
    has(capability) ? readList(connection, list, options, budget) : EMPTY_LIST;
  try {
    const [tools, prompts, resources, templates] = await Promise.all([
      read('tools', LISTS.tools),
      read('prompts', LISTS.prompts),
      read('resources', LISTS.resources),
      read('resources', LISTS.templates),
    ]);
    const { revision, serverInfo, instructions } = hello;
    const lists = [tools, prompts, resources, templates];
    options.onListed(performance.now() - beganMs);
    const offer: Offer = {
      revision,
      capabilities: hello.capabilities,
      serverInfo,
      instructions,
      caching: narrowest(lists.map(({ caching }) => caching)),
      tools: tools.items,
      prompts: prompts.items,
      resources: resources.items,
      templates: templates.items,
      unreadable: lists.flatMap(({ unreadable }) => unreadable),
    };
    return sharedOffer(offer, {
      tools: tools.digest,
      prompts: prompts.digest,
      resources: resources.digest,
      templates: templates.digest,
    });
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const { upstream } = options;
    throw new GatewayError('upstream-protocol', { upstream, message: `sent a list that cannot be read` }, thrown);
  }
}

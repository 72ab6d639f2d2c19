import { type Catalog, listTexts, partsOf } from '../../catalog/catalog.ts';
import { type Caching, UNCACHED } from '../../catalog/caching.ts';
import { toolTextsOf } from '../../catalog/names/named-items.ts';
import { cursorText, kindOf, type ListName, page, parseCursor } from '../../catalog/page.ts';
import { endpointPath } from '../../endpoint-path.ts';
import { GatewayError } from '../../errors.ts';
import { oneLine } from '../../json/json.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { META } from '../../protocol/meta.ts';
import type { Revision } from '../../protocol/revisions.ts';
import type { PagedLists } from './paged-lists.ts';
import type { ResultTranslator } from './result-translator.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { Client } from '../exchange/exchange.ts';
import type { Cancellable } from '../exchange/external-decisions.ts';
import { inSlices } from '../../work-turn.ts';
import type { ListAnnouncer } from '../lists/changes/list-announcer.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { Offers } from '../lists/offers.ts';
import type { Sealer } from '../handles/sealer.ts';
import { getOrMake } from '../../map-entries.ts';

const PAGE_ITEMS = 1_000;

const CURSOR_MS = 3_600_000;

/** The client of a request for a list, with the rights of that request. */
type Asker = Pick<Client, 'catalog' | 'caller' | 'dialect'>;

/** A request for a list, and the client that gets it. */
interface Listing {
  readonly holder: ConnectionHolder;
  readonly asker: Asker;
  readonly list: ListName;
  readonly request: Request;
}

export interface ListAnswersParts {
  readonly sealer: Sealer;
  readonly translator: ResultTranslator;
  readonly listRefresher: ListRefresher;
  readonly announcer: ListAnnouncer;
  readonly offers: Pick<Offers, 'cachingOf'>;
  readonly paged: PagedLists;
}

/** Answers `…/list` from the catalog of a client. The text of a list or page is made once per revision. */
export class ListAnswers {
  readonly #parts: ListAnswersParts;
  /**
   * Lists that fit on one page, by catalog, then by list and revision. All clients of a catalog get the same answer, so it does not depend
   * on the session. On the principal it depends only by the key of the catalog (`lists/offers.ts`).
   */
  readonly #whole = new WeakMap<Catalog, Map<string, Answer>>();

  constructor(parts: ListAnswersParts) {
    this.#parts = parts;
  }

  /**
   * Returns a list or a page of it; a promise unless the whole list is cached.
   *
   * @param asker has the catalog that the request may see.
   * @throws {GatewayError} `invalid-cursor`, `cancelled`
   */
  answer(
    one: Cancellable & Pick<Listing, 'request'>,
    holder: ConnectionHolder,
    list: ListName,
    asker: Asker,
  ): Answer | Promise<Answer> {
    const refreshing = this.#parts.listRefresher.refreshFor(holder);
    const listing = { holder, asker, list, request: one.request };
    return refreshing === undefined
      ? this.#answer(listing)
      : one.unlessCancelled(refreshing).then(() => this.#answer(listing));
  }

  #answer(listing: Listing): Answer | Promise<Answer> {
    const { holder, asker, list, request } = listing;
    const cursor = request.params?.raw('cursor');
    if (cursor !== undefined && cursor !== '""' && cursor !== 'null') {
      return this.#next(listing, request.params?.string('cursor') ?? '');
    }
    const { catalog, caller } = asker;
    // A request with other rights than its holder gets another list, so the announced change is still unread.
    if (catalog === holder.catalog) this.#parts.announcer.onListed(holder, list);
    const answers = getOrMake(this.#whole, catalog, () => new Map());
    const key = `${list} ${caller.revision}`;
    return answers.get(key) ?? this.#first(listing, answers, key);
  }

  async #first(listing: Listing, answers: Map<string, Answer>, key: string): Promise<Answer> {
    const { holder, asker, list, request } = listing;
    const { catalog, caller, dialect } = asker;
    const { revision } = caller;
    const caching = this.#parts.offers.cachingOf(holder);
    await inSlices(partsOf(catalog, list), (part) => toolTextsOf(part, revision));
    const items = listTexts(catalog, list, revision);
    const digest = catalog.digest[kindOf(list)];
    // Not kept: a cursor expires, and less is left of the time for which the client may keep a list, the later it gets it.
    if (items.length > PAGE_ITEMS || catalog.caching.ttlMs > 0)
      return await this.#page(listing, items, digest, 0, caching);
    const own = `{"${list}":[${items.join(',')}],${this.#metaText(asker)}}`;
    const result = this.#parts.translator.stampOwn(dialect, request.method, own, caching);
    const answer: Answer = { kind: 'result', result, tail: [Buffer.from(`${oneLine(result)}}`)] };
    answers.set(key, answer);
    return answer;
  }

  async #next(listing: Listing, cursor: string): Promise<Answer> {
    const { holder, asker, list } = listing;
    const payload = await this.#parts.sealer.unseal('cursor', cursor, Date.now());
    const position = typeof payload?.['at'] === 'string' ? parseCursor(payload['at']) : undefined;
    const items = position === undefined ? undefined : this.#itemsOf(asker, list, position.digest);
    const isOwn = payload?.['for'] === claimOf(asker);
    if (position === undefined || items === undefined || position.list !== list || !isOwn) {
      throw new GatewayError('invalid-cursor', {
        message: 'it is not ours or out of date; list again without a cursor',
      });
    }
    const isCurrent = asker.catalog.digest[kindOf(list)] === position.digest;
    // All pages of one list have the same scope. An earlier list is outdated.
    const { ttlMs } = isCurrent ? this.#parts.offers.cachingOf(holder) : UNCACHED;
    const caching = { ttlMs, isPublic: payload['public'] === true };
    return await this.#page(listing, items, position.digest, position.offset, caching);
  }

  /** Returns the `_meta` of a list: the pseudonyms of this endpoint and of those before it. */
  #metaText({ catalog }: Asker): string {
    const [own] = this.#parts.sealer.pseudonymsOf(endpointPath(catalog.view.id));
    return `"_meta":${JSON.stringify({ [META.endpoints]: [...new Set([own, ...catalog.endpoints])] })}`;
  }

  /** Returns the items of the list with this digest: an earlier list that is kept, or the current one. */
  #itemsOf({ catalog, caller }: Asker, list: ListName, digest: string): readonly string[] | undefined {
    const isCurrent = catalog.digest[kindOf(list)] === digest;
    // An earlier list may have items that its client may not use any more.
    if (!isCurrent && catalog.restriction !== undefined) return undefined;
    const earlier = this.#parts.paged.itemsOf(keyOf(list, digest, caller.revision));
    return earlier ?? (isCurrent ? listTexts(catalog, list, caller.revision) : undefined);
  }

  async #page(
    { asker, list, request }: Listing,
    all: readonly string[],
    digest: string,
    offset: number,
    caching: Caching,
  ): Promise<Answer> {
    const { items, next } = page(all, offset, PAGE_ITEMS);
    const { revision } = asker.caller;
    let nextCursor = '';
    if (next !== undefined) {
      const payload = {
        at: cursorText({ list, digest, offset: next }),
        for: claimOf(asker),
        public: caching.isPublic,
      };
      nextCursor = `,"nextCursor":${JSON.stringify(await this.#parts.sealer.seal('cursor', payload, Date.now() + CURSOR_MS))}`;
    }
    const own = `{"${list}":[]${nextCursor},${this.#metaText(asker)}}`;
    const shell = oneLine(this.#parts.translator.stampOwn(asker.dialect, request.method, own, caching));
    const key = keyOf(list, digest, revision);
    const array = this.#parts.paged.page(key, all, offset, () => Buffer.from(`[${items.join(',')}]`));
    return pageAnswer(shell, list, array);
  }
}

/** Returns the key of a list: all clients whose lists have this digest share it. Its texts may differ by revision. */
function keyOf(list: ListName, digest: string, revision: Revision): string {
  return `${list} ${digest} ${revision}`;
}

/** Returns the text that binds a cursor to a principal at an endpoint. */
function claimOf({ caller: { principal, view } }: Asker): string {
  return `${principal.key} ${view}`;
}

/** Returns the result `shell` with `array` instead of its empty list. The array is neither copied nor encoded again. */
function pageAnswer(shell: string, list: ListName, array: Buffer): Answer {
  const empty = `"${list}":[]`;
  const start = shell.indexOf(empty);
  if (start < 0) throw new RangeError(`a page without "${list}"`);
  const before = Buffer.from(shell.slice(0, start + empty.length - 2));
  const after = Buffer.from(`${shell.slice(start + empty.length)}}`);
  const tail = [before, array, after];
  return {
    kind: 'result',
    // Only the stdio edge reads the text.
    get result() {
      return Buffer.concat(tail).toString('utf8').slice(0, -1);
    },
    tail,
  };
}

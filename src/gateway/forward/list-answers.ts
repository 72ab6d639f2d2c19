import { type Catalog, listTexts, partsOf, prepareTexts } from '../../catalog/catalog.ts';
import { cursorText, kindOf, type ListName, page, parseCursor } from '../../catalog/page.ts';
import { GatewayError } from '../../errors.ts';
import { oneLine } from '../../json/json.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { isAnonymous } from '../../policy/principal.ts';
import type { PageCache } from './page-cache.ts';
import type { ResultTranslator } from './result-translator.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { inSlices } from '../lists/in-slices.ts';
import type { ListAnnouncer } from '../lists/list-announcer.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { Sealer } from '../handles/sealer.ts';

/** The lists, by the methods that ask for them. */
export const LISTS: ReadonlyMap<string, ListName> = new Map([
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
]);

const PAGE_ITEMS = 1_000;
/** Longer than anybody pages. */
const CURSOR_MS = 3_600_000;
/** States of lists that a cursor may still point into. */
const MAX_SNAPSHOTS = 32;

/** Answers `…/list` from a holder's catalog. The text of a list or page is made once per revision. */
export class ListAnswers {
  readonly #sealer: Sealer;
  readonly #answers: ResultTranslator;
  readonly #listRefresher: ListRefresher;
  readonly #announcer: ListAnnouncer;
  readonly #whole = new WeakMap<Catalog, Map<string, Answer>>();
  readonly #snapshots = new Map<string, readonly string[]>();
  readonly #pages: PageCache;
  readonly #ids = new WeakMap<readonly string[], number>();
  #lastId = 0;

  constructor(
    sealer: Sealer,
    answers: ResultTranslator,
    listRefresher: ListRefresher,
    announcer: ListAnnouncer,
    pages: PageCache,
  ) {
    this.#pages = pages;
    this.#sealer = sealer;
    this.#answers = answers;
    this.#listRefresher = listRefresher;
    this.#announcer = announcer;
  }

  /** At once where the whole list is known. @throws {GatewayError} `invalid-cursor` */
  answer(holder: ConnectionHolder, list: ListName, request: Request): Answer | Promise<Answer> {
    const looking = this.#listRefresher.refreshFor(holder);
    return looking === undefined
      ? this.#answer(holder, list, request)
      : looking.then(() => this.#answer(holder, list, request));
  }

  #answer(holder: ConnectionHolder, list: ListName, request: Request): Answer | Promise<Answer> {
    const cursor = request.params?.raw('cursor');
    if (cursor !== undefined && cursor !== '""' && cursor !== 'null') {
      return this.#next(holder, list, request.method, request.params?.string('cursor') ?? '');
    }
    const { catalog, caller } = holder;
    this.#announcer.onListed(holder, kindOf(list));
    let answers = this.#whole.get(catalog);
    if (answers === undefined) this.#whole.set(catalog, (answers = new Map()));
    const key = `${list} ${caller.revision}`;
    return answers.get(key) ?? this.#first(holder, list, request.method, answers, key);
  }

  async #first(
    holder: ConnectionHolder,
    list: ListName,
    method: string,
    answers: Map<string, Answer>,
    key: string,
  ): Promise<Answer> {
    const { catalog } = holder;
    const { revision } = holder.caller;
    await inSlices(partsOf(catalog, list), (part) => prepareTexts(part, revision));
    const items = listTexts(catalog, list, revision);
    // Behind authentication a list depends on the principal, and so does one that the holder's own connection shows.
    const isPublic = catalog.caching.isPublic && holder.ownOffers.size === 0 && isAnonymous(holder.caller.principal);
    const digest = catalog.digest[kindOf(list)];
    // A cursor inside would expire, so only whole lists are kept whole.
    if (items.length > PAGE_ITEMS) return await this.#page(holder, list, method, items, digest, 0, isPublic);
    const result = this.#stamp(holder, method, `{"${list}":[${items.join(',')}]}`, isPublic);
    const answer: Answer = { kind: 'result', result, tail: Buffer.from(`${oneLine(result)}}`) };
    answers.set(key, answer);
    return answer;
  }

  async #next(holder: ConnectionHolder, list: ListName, method: string, cursor: string): Promise<Answer> {
    const payload = await this.#sealer.unseal('cursor', cursor, Date.now());
    const place = typeof payload?.['at'] === 'string' ? parseCursor(payload['at']) : undefined;
    const items = place === undefined ? undefined : this.#stateOf(holder, list, place.digest);
    const isOwn = payload?.['for'] === `${holder.principal} ${holder.caller.view}`;
    if (place === undefined || items === undefined || place.list !== list || !isOwn) {
      throw new GatewayError('invalid-cursor', {
        message: 'it is not ours or out of date; list again without a cursor',
      });
    }
    const isPublic = payload['public'] === true;
    return await this.#page(holder, list, method, items, place.digest, place.offset, isPublic);
  }

  /** The list as it was when it had this digest, which after a restart may be as it is now. */
  #stateOf({ catalog, caller }: ConnectionHolder, list: ListName, digest: string): readonly string[] | undefined {
    const kept = this.#snapshots.get(`${list} ${digest} ${caller.revision}`);
    return kept ?? (catalog.digest[kindOf(list)] === digest ? listTexts(catalog, list, caller.revision) : undefined);
  }

  /** @param isPublic what the first page said: the pages of one list say the same, whatever has changed between them. */
  async #page(
    holder: ConnectionHolder,
    list: ListName,
    method: string,
    all: readonly string[],
    digest: string,
    offset: number,
    isPublic: boolean,
  ): Promise<Answer> {
    const { items, next } = page(all, offset, PAGE_ITEMS);
    const { revision } = holder.caller;
    const state = `${list} ${digest} ${revision}`;
    let nextCursor = '';
    if (next !== undefined) {
      this.#keep(state, all);
      const payload = {
        at: cursorText({ list, digest, offset: next }),
        for: `${holder.principal} ${holder.caller.view}`,
        public: isPublic,
      };
      nextCursor = `,"nextCursor":${JSON.stringify(await this.#sealer.seal('cursor', payload, Date.now() + CURSOR_MS))}`;
    }
    const shell = oneLine(this.#stamp(holder, method, `{"${list}":[]${nextCursor}}`, isPublic));
    const array = this.#pages.get(`${this.#idOf(all)} ${offset}`, () => Buffer.from(`[${items.join(',')}]`));
    return pageAnswer(shell, list, array);
  }

  /** Lists of one digest may differ in a revision's words, by the era of their upstream; the array is of one revision. */
  #idOf(all: readonly string[]): number {
    const id = this.#ids.get(all) ?? ++this.#lastId;
    this.#ids.set(all, id);
    return id;
  }

  #stamp({ caller, catalog }: ConnectionHolder, method: string, result: string, isPublic: boolean): string {
    if (caller.revision !== MODERN) return result;
    return this.#answers.stampOwn(method, result, { ttlMs: catalog.caching.ttlMs, isPublic });
  }

  #keep(key: string, items: readonly string[]): void {
    this.#snapshots.delete(key);
    this.#snapshots.set(key, items);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > MAX_SNAPSHOTS && oldest !== undefined) this.#snapshots.delete(oldest);
  }
}

/** Returns the result that `shell` is with `array` in place of its empty list. The array is copied, not encoded again. */
function pageAnswer(shell: string, list: ListName, array: Buffer): Answer {
  const empty = `"${list}":[]`;
  const place = shell.indexOf(empty);
  if (place < 0) throw new RangeError(`a page without "${list}"`);
  const before = Buffer.from(shell.slice(0, place + empty.length - 2));
  const after = Buffer.from(`${shell.slice(place + empty.length)}}`);
  const tail = Buffer.concat([before, array, after]);
  return {
    kind: 'result',
    // Read over stdio alone.
    get result() {
      return tail.toString('utf8', 0, tail.length - 1);
    },
    tail,
  };
}

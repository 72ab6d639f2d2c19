import { type Catalog, listTexts } from '../../catalog/catalog.ts';
import { cursorText, kindOf, type ListName, page, parseCursor } from '../../catalog/page.ts';
import { GatewayError } from '../../errors.ts';
import { oneLine } from '../../json/json.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { isAnonymous } from '../../policy/principal.ts';
import type { ResultTranslator } from './result-translator.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
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

/** Answers `…/list` from a holder's catalog. The whole text is made once per list and revision. */
export class ListAnswers {
  readonly #sealer: Sealer;
  readonly #answers: ResultTranslator;
  readonly #listRefresher: ListRefresher;
  readonly #announcer: ListAnnouncer;
  readonly #whole = new WeakMap<Catalog, Map<string, Answer>>();
  readonly #snapshots = new Map<string, readonly string[]>();

  constructor(sealer: Sealer, answers: ResultTranslator, listRefresher: ListRefresher, announcer: ListAnnouncer) {
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
    const items = listTexts(catalog, list, holder.caller.revision);
    // Behind authentication a list depends on the principal, and so does one that the holder's own connection shows.
    const isPublic = catalog.caching.isPublic && holder.ownOffers.size === 0 && isAnonymous(holder.caller.principal);
    const result = await this.#page(holder, list, method, items, catalog.digest[kindOf(list)], 0, isPublic);
    // A cursor inside would expire, so only whole lists are kept.
    if (items.length > PAGE_ITEMS) return { kind: 'result', result };
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
    const result = await this.#page(holder, list, method, items, place.digest, place.offset, isPublic);
    return { kind: 'result', result };
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
  ): Promise<string> {
    const { items, next } = page(all, offset, PAGE_ITEMS);
    const { revision } = holder.caller;
    let nextCursor = '';
    if (next !== undefined) {
      this.#keep(`${list} ${digest} ${revision}`, all);
      const payload = {
        at: cursorText({ list, digest, offset: next }),
        for: `${holder.principal} ${holder.caller.view}`,
        public: isPublic,
      };
      nextCursor = `,"nextCursor":${JSON.stringify(await this.#sealer.seal('cursor', payload, Date.now() + CURSOR_MS))}`;
    }
    const result = `{"${list}":[${items.join(',')}]${nextCursor}}`;
    if (revision !== MODERN) return result;
    return this.#answers.stampOwn(method, result, { ttlMs: holder.catalog.caching.ttlMs, isPublic });
  }

  #keep(key: string, items: readonly string[]): void {
    this.#snapshots.delete(key);
    this.#snapshots.set(key, items);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > MAX_SNAPSHOTS && oldest !== undefined) this.#snapshots.delete(oldest);
  }
}

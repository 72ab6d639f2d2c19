import { type Catalog, listTexts } from '../catalog/catalog.ts';
import { cursorText, kindOf, type ListName, page, parseCursor } from '../catalog/page.ts';
import { GatewayError } from '../errors.ts';
import { oneLine } from '../protocol/json.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Answers } from './answers.ts';
import type { Party } from './party.ts';
import type { Scouts } from './scouts.ts';
import type { Sealer } from './seal.ts';

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

/** Answers `…/list` from a party's catalog. The whole text is made once per list and revision. */
export class Lists {
  readonly #sealer: Sealer;
  readonly #answers: Answers;
  readonly #scouts: Scouts;
  readonly #whole = new WeakMap<Catalog, Map<string, Answer>>();
  readonly #snapshots = new Map<string, readonly string[]>();

  constructor(sealer: Sealer, answers: Answers, scouts: Scouts) {
    this.#sealer = sealer;
    this.#answers = answers;
    this.#scouts = scouts;
  }

  /** At once where the whole list is known. @throws {GatewayError} `invalid-cursor` */
  answer(party: Party, list: ListName, request: Request): Answer | Promise<Answer> {
    const looking = this.#scouts.look(party);
    return looking === undefined
      ? this.#answer(party, list, request)
      : looking.then(() => this.#answer(party, list, request));
  }

  #answer(party: Party, list: ListName, request: Request): Answer | Promise<Answer> {
    const cursor = request.params?.raw('cursor');
    if (cursor !== undefined && cursor !== '""' && cursor !== 'null') {
      return this.#next(party, list, request.method, request.params?.string('cursor') ?? '');
    }
    const { catalog, caller } = party;
    let answers = this.#whole.get(catalog);
    if (answers === undefined) this.#whole.set(catalog, (answers = new Map()));
    const key = `${list} ${caller.revision}`;
    return answers.get(key) ?? this.#first(party, list, request.method, answers, key);
  }

  async #first(
    party: Party,
    list: ListName,
    method: string,
    answers: Map<string, Answer>,
    key: string,
  ): Promise<Answer> {
    const { catalog } = party;
    const items = listTexts(catalog, list, party.caller.revision);
    // What a connection of its own shows is nobody else's.
    const isPublic = catalog.caching.isPublic && party.offers.size === 0;
    const result = await this.#page(party, list, method, items, catalog.digest[kindOf(list)], 0, isPublic);
    // A cursor inside would expire, so only whole lists are kept.
    if (items.length > PAGE_ITEMS) return { kind: 'result', result };
    const answer: Answer = { kind: 'result', result, tail: Buffer.from(`${oneLine(result)}}`) };
    answers.set(key, answer);
    return answer;
  }

  async #next(party: Party, list: ListName, method: string, cursor: string): Promise<Answer> {
    const payload = await this.#sealer.unseal('cursor', cursor, Date.now());
    const place = typeof payload?.['at'] === 'string' ? parseCursor(payload['at']) : undefined;
    const items = place === undefined ? undefined : this.#stateOf(party, list, place.digest);
    const isOwn = payload?.['for'] === `${party.principal} ${party.caller.view}`;
    if (place === undefined || items === undefined || place.list !== list || !isOwn) {
      throw new GatewayError('invalid-cursor', { say: 'it is not ours or out of date; list again without a cursor' });
    }
    const isPublic = payload['public'] === true;
    const result = await this.#page(party, list, method, items, place.digest, place.offset, isPublic);
    return { kind: 'result', result };
  }

  /** The list as it was when it had this digest, which after a restart may be as it is now. */
  #stateOf({ catalog, caller }: Party, list: ListName, digest: string): readonly string[] | undefined {
    const kept = this.#snapshots.get(`${list} ${digest} ${caller.revision}`);
    return kept ?? (catalog.digest[kindOf(list)] === digest ? listTexts(catalog, list, caller.revision) : undefined);
  }

  /** @param isPublic what the first page said: the pages of one list say the same, whatever has changed between them. */
  async #page(
    party: Party,
    list: ListName,
    method: string,
    all: readonly string[],
    digest: string,
    offset: number,
    isPublic: boolean,
  ): Promise<string> {
    const { items, next } = page(all, offset, PAGE_ITEMS);
    const { revision } = party.caller;
    let nextCursor = '';
    if (next !== undefined) {
      this.#keep(`${list} ${digest} ${revision}`, all);
      const payload = {
        at: cursorText({ list, digest, offset: next }),
        for: `${party.principal} ${party.caller.view}`,
        public: isPublic,
      };
      nextCursor = `,"nextCursor":${JSON.stringify(await this.#sealer.seal('cursor', payload, Date.now() + CURSOR_MS))}`;
    }
    const result = `{"${list}":[${items.join(',')}]${nextCursor}}`;
    if (revision !== MODERN) return result;
    return this.#answers.own(method, result, { ttlMs: party.catalog.caching.ttlMs, isPublic });
  }

  #keep(key: string, items: readonly string[]): void {
    this.#snapshots.delete(key);
    this.#snapshots.set(key, items);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > MAX_SNAPSHOTS && oldest !== undefined) this.#snapshots.delete(oldest);
  }
}

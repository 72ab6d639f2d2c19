import type { Catalog } from '../catalog/catalog.ts';
import { cursorText, kindOf, type ListName, page, parseCursor } from '../catalog/page.ts';
import { GatewayError } from '../errors.ts';
import { oneLine } from '../protocol/json.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import { lowerListItem } from '../protocol/lower.ts';
import type { LegacyRevision } from '../protocol/revisions.ts';
import type { Sealer } from './seal.ts';
import type { Session } from './session.ts';

const PAGE_ITEMS = 1_000;
/** Longer than anybody pages. */
const CURSOR_MS = 3_600_000;
/** States of lists that a cursor may still point into. */
const MAX_SNAPSHOTS = 32;

/** Answers `…/list` from a session's catalog. The whole text is made once per list and revision. */
export class Lists {
  readonly #sealer: Sealer;
  readonly #whole = new WeakMap<Catalog, Map<string, Answer>>();
  readonly #snapshots = new Map<string, readonly string[]>();

  constructor(sealer: Sealer) {
    this.#sealer = sealer;
  }

  /** At once where the whole list is known. @throws {GatewayError} `invalid-cursor` */
  answer(session: Session, list: ListName, request: Request): Answer | Promise<Answer> {
    const cursor = request.params?.raw('cursor');
    if (cursor !== undefined && cursor !== '""' && cursor !== 'null') {
      return this.#next(session, list, request.params?.string('cursor') ?? '');
    }
    const { catalog, caller } = session;
    let answers = this.#whole.get(catalog);
    if (answers === undefined) this.#whole.set(catalog, (answers = new Map()));
    const key = `${list} ${caller.revision}`;
    return answers.get(key) ?? this.#first(session, list, answers, key);
  }

  async #first(session: Session, list: ListName, answers: Map<string, Answer>, key: string): Promise<Answer> {
    const { catalog } = session;
    const items = catalog.lists[list];
    const result = await this.#page(session, list, items, catalog.digest[kindOf(list)], 0);
    // A cursor inside would expire, so only whole lists are kept.
    if (items.length > PAGE_ITEMS) return { kind: 'result', result };
    const answer: Answer = { kind: 'result', result, tail: Buffer.from(`${oneLine(result)}}`) };
    answers.set(key, answer);
    return answer;
  }

  async #next(session: Session, list: ListName, cursor: string): Promise<Answer> {
    const payload = await this.#sealer.unseal('cursor', cursor, Date.now());
    const place = typeof payload?.['at'] === 'string' ? parseCursor(payload['at']) : undefined;
    const items = place === undefined ? undefined : this.#stateOf(session, list, place.digest);
    const isOwn = payload?.['for'] === `${session.principal} ${session.caller.view}`;
    if (place === undefined || items === undefined || place.list !== list || !isOwn) {
      throw new GatewayError('invalid-cursor', { say: 'it is not ours or out of date; list again without a cursor' });
    }
    return { kind: 'result', result: await this.#page(session, list, items, place.digest, place.offset) };
  }

  /** The list as it was when it had this digest, which after a restart may be as it is now. */
  #stateOf({ catalog }: Session, list: ListName, digest: string): readonly string[] | undefined {
    const kept = this.#snapshots.get(`${list} ${digest}`);
    return kept ?? (catalog.digest[kindOf(list)] === digest ? catalog.lists[list] : undefined);
  }

  async #page(
    session: Session,
    list: ListName,
    all: readonly string[],
    digest: string,
    offset: number,
  ): Promise<string> {
    const { items, next } = page(all, offset, PAGE_ITEMS);
    const lowered = items.map((item) => lower(list, session.caller.revision, item));
    let nextCursor = '';
    if (next !== undefined) {
      this.#keep(`${list} ${digest}`, all);
      const payload = {
        at: cursorText({ list, digest, offset: next }),
        for: `${session.principal} ${session.caller.view}`,
      };
      nextCursor = `,"nextCursor":${JSON.stringify(await this.#sealer.seal('cursor', payload, Date.now() + CURSOR_MS))}`;
    }
    return `{"${list}":[${lowered.join(',')}]${nextCursor}}`;
  }

  #keep(key: string, items: readonly string[]): void {
    this.#snapshots.delete(key);
    this.#snapshots.set(key, items);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > MAX_SNAPSHOTS && oldest !== undefined) this.#snapshots.delete(oldest);
  }
}

function lower(list: ListName, revision: LegacyRevision, item: string): string {
  return list === 'tools' ? lowerListItem('tools', revision, item) : item;
}

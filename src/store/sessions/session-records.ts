import { detach, KeptMap, KeptSet, type KeptText } from '../../json/kept-text.ts';
import { getOrMake, KeyedSums } from '../../map-entries.ts';
import { parseId, type RecordEntry } from './session-entry.ts';
import type { SessionRecord } from '../session-store.ts';

/** Memory of a record, and of each of its texts, besides the characters. */
const RECORD_BYTES = 256;
const TEXT_BYTES = 64;

interface StoredRecord {
  readonly principal: string;
  readonly expiresMs: number;
  level: KeptText | undefined;
  readonly uris: KeptSet;
  readonly upstreams: KeptSet;
  readonly attachments: KeptMap<KeptText>;
  bytes: number;
}

function textBytes(text: string): number {
  return 2 * text.length + TEXT_BYTES;
}

/** The session whose record has lost something. */
interface Dropped {
  readonly id: string;
  readonly expiresMs: number;
}

type IdsByPrincipal = Map<string, Set<string>>;

function addTo(ids: IdsByPrincipal, principal: string, id: string): void {
  getOrMake(ids, principal, () => new Set()).add(id);
}

function removeFrom(ids: IdsByPrincipal, principal: string, id: string): void {
  const own = ids.get(principal);
  own?.delete(id);
  if (own?.size === 0) ids.delete(principal);
}

/** The records of sessions by session id, with their memory per principal and in total. */
export class SessionRecords {
  readonly #records = new Map<string, StoredRecord>();
  /** The memory of all records, by principal. */
  readonly all = new KeyedSums();
  /** The part of it that attachments take. */
  readonly attachments = new KeyedSums();
  /** The ids of sessions with attachments, by principal; the one that got its last one first comes first. */
  readonly #attached: IdsByPrincipal = new Map();
  /** The ids of sessions without subscriptions and attachments, by principal, in the order in which they became so. */
  readonly #plain: IdsByPrincipal = new Map();

  /** Returns how many bytes the records grow with this text in the record of a session. */
  bytesFor(id: string, text: string): number {
    return textBytes(text) + (this.#records.has(id) ? 0 : RECORD_BYTES);
  }

  get(id: string): SessionRecord | undefined {
    const record = this.#records.get(id);
    if (record === undefined) return undefined;
    const { level, uris, upstreams, attachments } = record;
    return {
      ...(level === undefined ? {} : { logLevel: level }),
      subscriptions: [...uris],
      ...(upstreams.size === 0 ? {} : { upstreams: [...upstreams] }),
      ...(attachments.size === 0
        ? {}
        : { attachments: [...attachments].map(([upstream, text]) => ({ upstream, text })) }),
    };
  }

  hasUri(id: string, uri: string): boolean {
    return this.#records.get(id)?.uris.has(uri) ?? false;
  }

  uriCount(id: string): number {
    return this.#records.get(id)?.uris.size ?? 0;
  }

  hasUpstream(id: string, upstream: string): boolean {
    return this.#records.get(id)?.upstreams.has(upstream) ?? false;
  }

  /** Applies the change of a journal entry. Returns false if the record stays the same. */
  apply(entry: RecordEntry): boolean {
    const { id } = entry;
    if ('unsubscribe' in entry) return this.#removeUri(id, entry.unsubscribe);
    if ('uris' in entry) {
      this.remove(id);
      for (const subscribe of entry.uris) this.apply({ id, expires: entry.expires, subscribe });
      for (const use of entry.used ?? []) this.apply({ id, expires: entry.expires, use });
      if (entry.level === undefined) return false;
    }
    const record = this.#records.get(id) ?? this.#create(entry);
    if ('subscribe' in entry) {
      removeFrom(this.#plain, record.principal, id);
      return this.#addText(record, record.uris, entry.subscribe);
    }
    if ('use' in entry) return this.#addText(record, record.upstreams, entry.use);
    if ('attach' in entry) return this.#setAttachment(id, record, ...entry.attach);
    return entry.level !== undefined && this.#setLevel(record, entry.level);
  }

  #addText(record: StoredRecord, texts: KeptSet, text: string): boolean {
    if (texts.has(text)) return false;
    texts.add(detach(text));
    this.#grow(record, textBytes(text));
    return true;
  }

  #setLevel(record: StoredRecord, level: string): boolean {
    if (record.level === level) return false;
    this.#grow(record, textBytes(level) - (record.level === undefined ? 0 : textBytes(record.level)));
    record.level = detach(level);
    return true;
  }

  #setAttachment(id: string, record: StoredRecord, upstream: string, text: string): boolean {
    removeFrom(this.#plain, record.principal, id);
    removeFrom(this.#attached, record.principal, id);
    addTo(this.#attached, record.principal, id);
    const before = record.attachments.get(upstream);
    if (before === text) return false;
    record.attachments.set(detach(upstream), detach(text));
    const bytes = textBytes(text) - (before === undefined ? -textBytes(upstream) : textBytes(before));
    this.attachments.add(record.principal, bytes);
    this.#grow(record, bytes);
    return true;
  }

  /**
   * Removes the attachments of the session of a principal that got its last one first.
   *
   * @param principal undefined for the one that has had attachments for longest. @param exceptId of a session that keeps its own.
   */
  dropAttachments(principal: string | undefined, exceptId: string): Dropped | undefined {
    const found = this.#firstOf(this.#attached, principal, exceptId);
    if (found === undefined) return undefined;
    this.#detachAll(found.id, found.record);
    this.#onRemoved(found.id, found.record);
    return { id: found.id, expiresMs: found.record.expiresMs };
  }

  /**
   * Removes the oldest record of a principal that has neither subscriptions nor attachments.
   *
   * @param principal undefined for the one that has had such records for longest. @param exceptId of a session that keeps its own.
   */
  dropOldest(principal: string | undefined, exceptId: string): Dropped | undefined {
    const found = this.#firstOf(this.#plain, principal, exceptId);
    if (found === undefined) return undefined;
    this.remove(found.id);
    return { id: found.id, expiresMs: found.record.expiresMs };
  }

  #firstOf(
    ids: IdsByPrincipal,
    principal: string | undefined,
    exceptId: string,
  ): { readonly id: string; readonly record: StoredRecord } | undefined {
    const sets = principal === undefined ? ids.values() : [ids.get(principal) ?? new Set<string>()];
    for (const set of sets) {
      const id = set.values().find((each) => each !== exceptId);
      const record = id === undefined ? undefined : this.#records.get(id);
      if (id !== undefined && record !== undefined) return { id, record };
    }
    return undefined;
  }

  #detachAll(id: string, record: StoredRecord): void {
    const { principal, attachments } = record;
    for (const [upstream, text] of attachments) {
      this.attachments.add(principal, -textBytes(upstream) - textBytes(text));
      this.#grow(record, -textBytes(upstream) - textBytes(text));
    }
    attachments.clear();
    removeFrom(this.#attached, principal, id);
  }

  #removeUri(id: string, uri: string): boolean {
    const record = this.#records.get(id);
    if (record === undefined || !record.uris.delete(uri)) return false;
    this.#grow(record, -textBytes(uri));
    this.#onRemoved(id, record);
    return true;
  }

  /** Removes a record that has become empty. */
  #onRemoved(id: string, { principal, uris, upstreams, attachments, level }: StoredRecord): void {
    if (uris.size > 0 || attachments.size > 0) return;
    if (upstreams.size === 0 && level === undefined) this.remove(id);
    else addTo(this.#plain, principal, id);
  }

  remove(id: string): void {
    const record = this.#records.get(id);
    if (record === undefined) return;
    this.#detachAll(id, record);
    removeFrom(this.#plain, record.principal, id);
    this.#grow(record, -record.bytes);
    this.#records.delete(id);
  }

  removeExpired(nowMs: number): void {
    for (const [id, { expiresMs }] of this.#records) {
      if (nowMs >= expiresMs) this.remove(id);
    }
  }

  *[Symbol.iterator](): Generator<{ readonly id: string; readonly expiresMs: number }> {
    for (const [id, { expiresMs }] of this.#records) yield { id, expiresMs };
  }

  #create({ id, expires }: RecordEntry): StoredRecord {
    const record: StoredRecord = {
      principal: parseId(id).name,
      expiresMs: expires,
      level: undefined,
      uris: new KeptSet(),
      upstreams: new KeptSet(),
      attachments: new KeptMap(),
      bytes: 0,
    };
    this.#records.set(id, record);
    addTo(this.#plain, record.principal, id);
    this.#grow(record, RECORD_BYTES);
    return record;
  }

  #grow(record: StoredRecord, bytes: number): void {
    record.bytes += bytes;
    this.all.add(record.principal, bytes);
  }
}

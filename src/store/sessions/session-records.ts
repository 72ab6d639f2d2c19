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

/** The records of sessions by session id, with their memory per principal and in total. */
export class SessionRecords {
  readonly #records = new Map<string, StoredRecord>();
  readonly #bytes = new KeyedSums();
  /** The ids of sessions with attachments, by principal; the one that got its last one first comes first. */
  readonly #attached = new Map<string, Set<string>>();

  get bytes(): number {
    return this.#bytes.total;
  }

  bytesOf(principal: string): number {
    return this.#bytes.of(principal);
  }

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
    if ('subscribe' in entry) return this.#addText(record, record.uris, entry.subscribe);
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
    const attached = getOrMake(this.#attached, record.principal, () => new Set());
    attached.delete(id);
    attached.add(id);
    const before = record.attachments.get(upstream);
    if (before === text) return false;
    record.attachments.set(detach(upstream), detach(text));
    this.#grow(record, textBytes(text) - (before === undefined ? -textBytes(upstream) : textBytes(before)));
    return true;
  }

  /** Removes the attachments of the session of a principal that got its last one first. @param exceptId of a session that keeps its own. */
  dropAttachments(
    principal: string,
    exceptId: string,
  ): { readonly id: string; readonly expiresMs: number } | undefined {
    const id = this.#attached
      .get(principal)
      ?.values()
      .find((each) => each !== exceptId);
    const record = id === undefined ? undefined : this.#records.get(id);
    if (id === undefined || record === undefined) return undefined;
    for (const [upstream, text] of record.attachments) this.#grow(record, -textBytes(upstream) - textBytes(text));
    record.attachments.clear();
    this.#unattach(id, record);
    this.#removeEmpty(id, record);
    return { id, expiresMs: record.expiresMs };
  }

  /**
   * Removes the oldest records of a principal that have neither subscriptions nor attachments, until its records have at most so many bytes.
   *
   * @param exceptId of a session that keeps its own.
   */
  dropOldest(
    principal: string,
    exceptId: string,
    bytes: number,
  ): readonly { readonly id: string; readonly expiresMs: number }[] {
    const dropped: { id: string; expiresMs: number }[] = [];
    for (const [id, { principal: owner, uris, attachments, expiresMs }] of this.#records) {
      if (this.bytesOf(principal) <= bytes) break;
      if (owner !== principal || id === exceptId || uris.size > 0 || attachments.size > 0) continue;
      this.remove(id);
      dropped.push({ id, expiresMs });
    }
    return dropped;
  }

  #unattach(id: string, { principal }: StoredRecord): void {
    const attached = this.#attached.get(principal);
    attached?.delete(id);
    if (attached?.size === 0) this.#attached.delete(principal);
  }

  #removeUri(id: string, uri: string): boolean {
    const record = this.#records.get(id);
    if (record === undefined || !record.uris.delete(uri)) return false;
    this.#grow(record, -textBytes(uri));
    this.#removeEmpty(id, record);
    return true;
  }

  #removeEmpty(id: string, { uris, upstreams, attachments, level }: StoredRecord): void {
    if (uris.size === 0 && upstreams.size === 0 && attachments.size === 0 && level === undefined) this.remove(id);
  }

  remove(id: string): void {
    const record = this.#records.get(id);
    if (record === undefined) return;
    this.#grow(record, -record.bytes);
    this.#unattach(id, record);
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
    this.#grow(record, RECORD_BYTES);
    return record;
  }

  #grow(record: StoredRecord, bytes: number): void {
    record.bytes += bytes;
    this.#bytes.add(record.principal, bytes);
  }
}

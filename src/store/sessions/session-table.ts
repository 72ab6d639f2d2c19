import { hash } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { EndedSerials } from './ended-serials.ts';
import { parseId, type RecordEntry, type SessionEntry } from './session-entry.ts';
import { SessionRecords } from './session-records.ts';
import { ATTACHMENTS_FRACTION, type SessionChange, type SessionRecord, type SessionRef } from '../session-store.ts';
import { getOrMake, type KeyedSums } from '../../map-entries.ts';

/** Longer than any session id is valid. */
export const MAX_VALIDITY_MS = 366 * 24 * 3_600_000;
/**
 * Fraction of the ranges that remains when there are too many. The gap keeps this from happening at every end of a
 * session.
 */
export const KEPT_FRACTION = 0.75;
/** The same of the ranges of all principals. Fewer make room, since principals with few ranges may lose sessions by it. */
const KEPT_FRACTION_OF_ALL = 63 / 64;
/** A full table looks for expired sessions at most this often. */
const SWEEP_MS = 10_000;

/** One principal: the serial number of its next session in this process, and its ended sessions. */
interface PrincipalSessions {
  next: number | undefined;
  readonly ended: EndedSerials;
}

/** The outcome of a change. */
interface Changed {
  /** The journal entries of the change. A refused one has some too, if others have made room for it. */
  readonly entries: readonly SessionEntry[];
  /** The limit that forbids the change. */
  readonly limit: LimitName | undefined;
}

/** Returns the hash of a principal, its key in the table, which does not reveal the principal. */
function principalHash(principal: string): string {
  return hash('sha256', principal, 'base64url').slice(0, 22);
}

function idOf({ principal, serial }: SessionRef): string {
  return `${principalHash(principal)}.${serial}`;
}

function entryOf(session: SessionRef, change: SessionChange): RecordEntry {
  const head = { id: idOf(session), expires: session.expiresMs };
  switch (change.kind) {
    case 'level':
      return { ...head, level: change.level };
    case 'subscribe':
      return { ...head, subscribe: change.uri };
    case 'unsubscribe':
      return { ...head, unsubscribe: change.uri };
    case 'use':
      return { ...head, use: change.upstream };
    case 'attach':
      return { ...head, attach: [change.upstream, change.text] };
  }
}

/** Returns the entry of a whole record, without its attachments. */
function recordEntry(
  { id, expiresMs }: { readonly id: string; readonly expiresMs: number },
  { logLevel, subscriptions, upstreams }: SessionRecord = { subscriptions: [] },
): RecordEntry {
  return {
    id,
    expires: expiresMs,
    ...(logLevel === undefined ? {} : { level: logLevel }),
    uris: [...subscriptions],
    ...(upstreams === undefined ? {} : { used: [...upstreams] }),
  };
}

function textOf(change: SessionChange): string {
  switch (change.kind) {
    case 'level':
      return change.level;
    case 'use':
      return change.upstream;
    case 'attach':
      return change.upstream + change.text;
    case 'subscribe':
    case 'unsubscribe':
      return change.uri;
  }
}

function endedEntry(name: string, { ranges }: EndedSerials): SessionEntry {
  return { owner: name, ended: ranges.map(({ first, last, untilMs }) => [first, last, untilMs]) };
}

/**
 * The state of all sessions in memory: their records, and which of them have ended.
 *
 * All of it is bounded, per principal and in total. The table creates and applies journal entries, and does no I/O.
 */
export class SessionTable {
  readonly #onLimit: (limit: LimitName) => void;
  readonly #principals = new Map<string, PrincipalSessions>();
  readonly #records = new SessionRecords();
  /** Higher than every serial number in use. */
  #unused: number;
  #ranges = 0;
  #sweptMs = -Infinity;

  /** @param onLimit called when a bound refuses or removes something. */
  constructor(onLimit: (limit: LimitName) => void, nowMs: number) {
    this.#onLimit = onLimit;
    // The numbers of earlier processes are lower, written down or not: no process opens 1 000 sessions per ms.
    this.#unused = nowMs * 1_000;
  }

  /** See {@link SessionStore.nextSerial}. @throws {GatewayError} `overloaded` if there are too many principals. */
  nextSerial(principal: string, nowMs: number): number {
    const name = principalHash(principal);
    if (!this.#principals.has(name)) this.#makeRoom(nowMs);
    const sessions = this.#principal(name);
    const serial = sessions.next ?? this.#unused;
    sessions.next = serial + 1;
    this.#unused = Math.max(this.#unused, sessions.next);
    return serial;
  }

  /** Makes room for one more principal. */
  #makeRoom(nowMs: number): void {
    if (this.#principals.size < LIMITS.sessionPrincipals) return;
    this.#sweep(nowMs);
    for (const [name, { ended }] of this.#principals) {
      if (ended.size === 0) this.#principals.delete(name);
    }
    if (this.#principals.size < LIMITS.sessionPrincipals) return;
    this.#onLimit('sessionPrincipals');
    const message = `${this.#principals.size} principals have ended sessions whose ids have not expired; try again later`;
    throw new GatewayError('overloaded', { message });
  }

  #principal(name: string): PrincipalSessions {
    return getOrMake(this.#principals, name, () => ({ next: undefined, ended: new EndedSerials() }));
  }

  load(session: SessionRef, nowMs: number): SessionRecord | undefined {
    if (nowMs >= session.expiresMs || this.isEnded(session)) return undefined;
    return this.#records.get(idOf(session));
  }

  isEnded({ principal, serial }: SessionRef): boolean {
    return this.#principals.get(principalHash(principal))?.ended.has(serial) ?? false;
  }

  /**
   * Changes a record, or refuses to.
   *
   * A change without room takes that of other sessions of its principal. An attachment takes that of older attachments. Any change takes that of
   * the oldest records without subscriptions and attachments, and then that of the oldest attachments. If the room of all is full and the principal
   * has nothing to lose, others do. Sessions that were left behind would keep out all later ones until they expire.
   */
  change(session: SessionRef, change: SessionChange, nowMs: number): Changed {
    const entries: SessionEntry[] = [];
    if (nowMs >= session.expiresMs || this.isEnded(session)) return { entries, limit: undefined };
    let limit = this.#limitOf(session, change, nowMs);
    if (limit !== undefined) this.#onLimit(limit);
    while (limit !== undefined) {
      const dropped = this.#makeRoomFor(session, change, limit);
      if (dropped === undefined) return { entries, limit };
      entries.push(dropped);
      limit = this.#limitOf(session, change, nowMs);
    }
    const entry = entryOf(session, change);
    if (this.#records.apply(entry)) entries.push(entry);
    return { entries, limit: undefined };
  }

  /** Removes something of another session. Returns the journal entry of its record; undefined if there is nothing to remove. */
  #makeRoomFor(session: SessionRef, change: SessionChange, limit: LimitName): SessionEntry | undefined {
    if (limit !== 'sessionRecordBytesPerPrincipal' && limit !== 'sessionRecordBytes') return undefined;
    const [name, id] = [principalHash(session.principal), idOf(session)];
    const records = this.#records;
    const mayDropOldest = this.#attachmentsLimit(session, change) === undefined;
    const drop = (owner: string | undefined) =>
      (mayDropOldest ? records.dropOldest(owner, id) : undefined) ?? records.dropAttachments(owner, id);
    const dropped = drop(name) ?? (limit === 'sessionRecordBytes' ? drop(undefined) : undefined);
    return dropped && recordEntry(dropped, records.get(dropped.id));
  }

  #limitOf(session: SessionRef, change: SessionChange, nowMs: number): LimitName | undefined {
    if (change.kind === 'unsubscribe') return undefined;
    const id = idOf(session);
    if (change.kind === 'subscribe') {
      if (Buffer.byteLength(change.uri) > LIMITS.subscriptionUriBytes) return 'subscriptionUriBytes';
      if (this.#records.hasUri(id, change.uri)) return undefined;
      if (this.#records.uriCount(id) >= LIMITS.subscriptionsPerSession) return 'subscriptionsPerSession';
    }
    if (change.kind === 'use' && this.#records.hasUpstream(id, change.upstream)) return undefined;
    if (change.kind === 'attach' && Buffer.byteLength(change.text) > LIMITS.attachmentBytes) return 'attachmentBytes';
    if (this.#bytesLimit(session, change) === undefined) return undefined;
    this.#sweep(nowMs);
    return this.#bytesLimit(session, change);
  }

  #bytesLimit(session: SessionRef, change: SessionChange): LimitName | undefined {
    return this.#attachmentsLimit(session, change) ?? this.#limitIn(this.#records.all, 1, session, change);
  }

  /** Attachments have at most a part of the room, so that there is always some for what clients ask for. */
  #attachmentsLimit(session: SessionRef, change: SessionChange): LimitName | undefined {
    if (change.kind !== 'attach') return undefined;
    return this.#limitIn(this.#records.attachments, ATTACHMENTS_FRACTION, session, change);
  }

  #limitIn(sums: KeyedSums, part: number, session: SessionRef, change: SessionChange): LimitName | undefined {
    const { sessionRecordBytesPerPrincipal: mostOwn, sessionRecordBytes: most } = LIMITS;
    const bytes = this.#records.bytesFor(idOf(session), textOf(change));
    if (sums.of(principalHash(session.principal)) + bytes > mostOwn * part) return 'sessionRecordBytesPerPrincipal';
    return sums.total + bytes > most * part ? 'sessionRecordBytes' : undefined;
  }

  /** Ends a session. Returns the journal entries of the change. */
  end(session: SessionRef, nowMs: number): readonly SessionEntry[] {
    const { serial, expiresMs } = session;
    const entry: SessionEntry = { owner: principalHash(session.principal), ended: [[serial, serial, expiresMs]] };
    this.apply(entry);
    return [entry, ...this.#keepWithinBounds(entry.owner, nowMs)];
  }

  /** Joins the oldest ranges of principals that have too many. This also ends the sessions between them. */
  #keepWithinBounds(name: string, nowMs: number): readonly SessionEntry[] {
    const own = this.#principal(name).ended;
    if (own.size <= LIMITS.endedRangesPerPrincipal && this.#ranges <= LIMITS.endedRanges) return [];
    this.#sweep(nowMs);
    if (own.size > LIMITS.endedRangesPerPrincipal) {
      this.#onLimit('endedRangesPerPrincipal');
      return this.#join([[name, own]], 0, nowMs);
    }
    if (this.#ranges <= LIMITS.endedRanges) return [];
    this.#onLimit('endedRanges');
    // The principals with the most ranges are reduced, even if these are others.
    const largestFirst = [...this.#principals]
      .map(([each, { ended }]) => [each, ended] as const)
      .toSorted(([, a], [, b]) => b.size - a.size);
    return this.#join(largestFirst, LIMITS.endedRanges * KEPT_FRACTION_OF_ALL, nowMs);
  }

  /** Joins ranges of one principal after the other until so many are left of all. Returns the journal entries of the change. */
  #join(principals: Iterable<readonly [string, EndedSerials]>, left: number, nowMs: number): readonly SessionEntry[] {
    const joined = new Map<string, EndedSerials>();
    for (const [name, ended] of principals) {
      if (this.#ranges <= left) break;
      const size = ended.size;
      ended.joinOldest(Math.floor(size * KEPT_FRACTION), nowMs + MAX_VALIDITY_MS);
      this.#ranges += ended.size - size;
      joined.set(name, ended);
    }
    this.removeEndedRecords();
    return [...joined].map(([name, ended]) => endedEntry(name, ended));
  }

  /** Removes the records of sessions that joined ranges have ended. */
  removeEndedRecords(): void {
    for (const { id } of this.#records) {
      const { name, serial } = parseId(id);
      if (this.#principals.get(name)?.ended.has(serial) === true) this.#records.remove(id);
    }
  }

  /** Applies the change of a journal entry. After the last one of a journal, {@link removeEndedRecords} follows. */
  apply(entry: SessionEntry): void {
    if ('ended' in entry) {
      this.#applyEnded(entry);
      return;
    }
    const { name, serial } = parseId(entry.id);
    this.#unused = Math.max(this.#unused, serial + 1);
    if (!(this.#principals.get(name)?.ended.has(serial) ?? false)) this.#records.apply(entry);
  }

  #applyEnded({ owner: name, ended: ranges }: Extract<SessionEntry, { readonly ended: unknown }>): void {
    const { ended } = this.#principal(name);
    for (const [first, last, untilMs] of ranges) {
      const size = ended.size;
      ended.add({ first, last, untilMs });
      this.#ranges += ended.size - size;
      this.#unused = Math.max(this.#unused, last + 1);
      if (first === last) this.#records.remove(`${name}.${first}`);
    }
  }

  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptMs >= SWEEP_MS) this.removeExpired(nowMs);
  }

  /** Removes the sessions whose ids have expired. */
  removeExpired(nowMs: number): void {
    this.#sweptMs = nowMs;
    this.#records.removeExpired(nowMs);
    this.#ranges = 0;
    for (const [name, sessions] of this.#principals) {
      sessions.ended.removeExpired(nowMs);
      this.#ranges += sessions.ended.size;
      if (sessions.ended.size === 0 && sessions.next === undefined) this.#principals.delete(name);
    }
  }

  /**
   * Yields the journal entries of the whole table. The table may change meanwhile; then later entries repeat a part of
   * it.
   */
  *entries(): Generator<SessionEntry> {
    for (const [name, { ended }] of this.#principals) {
      if (ended.size > 0) yield endedEntry(name, ended);
    }
    for (const { id, expiresMs } of this.#records) {
      const record = this.#records.get(id);
      if (record === undefined) continue;
      yield recordEntry({ id, expiresMs }, record);
      for (const { upstream, text } of record.attachments ?? [])
        yield { id, expires: expiresMs, attach: [upstream, text] };
    }
  }
}

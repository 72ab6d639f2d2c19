import { systemCode } from '../../thrown.ts';
import { join } from 'node:path';
import type { LimitName } from '../../limits.ts';
import { Journal, type JournalEvents } from '../disk/journal.ts';
import { parseEntry, type SessionEntry } from './session-entry.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../session-store.ts';
import { SessionTable } from './session-table.ts';

export interface SessionStoreEvents extends JournalEvents {
  /** Called when a bound refuses or removes something. */
  onLimit(limit: LimitName): void;
  /** Called with the reason, for the operator, why something in the state directory is not used or not safe. */
  onRefused(error: Error): void;
}

/** Stores session state in memory. Without a journal it ends with the process, and so do the session ids. */
export class LocalSessionStore implements SessionStore {
  readonly #table: SessionTable;
  #journal: Journal | undefined;
  #stateDir = '';

  /** Makes a store without a journal. @param onLimit called when a bound refuses or removes something. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#table = new SessionTable(onLimit, Date.now());
  }

  /**
   * Opens the store with a journal in a state directory. One process at a time may do so. Reads the journal, and rewrites it without
   * expired entries. Incomplete or invalid lines are skipped.
   */
  static async open(stateDir: string, events: SessionStoreEvents): Promise<LocalSessionStore> {
    const store = new LocalSessionStore((limit) => events.onLimit(limit));
    const table = store.#table;
    const journal = new Journal(join(stateDir, 'sessions.jsonl'), () => table.entries().map(lineOf), events);
    for await (const line of journal.read()) {
      const entry = parseEntry(line);
      if (entry !== undefined) table.apply(entry);
    }
    table.removeEndedRecords();
    table.removeExpired(Date.now());
    await journal.compact();
    store.#journal = journal;
    store.#stateDir = stateDir;
    return store;
  }

  get failure(): string | undefined {
    const failure = this.#journal?.failure;
    if (failure === undefined) return undefined;
    const why = systemCode(failure) ?? (failure instanceof Error ? failure.message : 'unknown error');
    return `state directory ${this.#stateDir} cannot be written: ${why}`;
  }

  async nextSerial(principal: string): Promise<number> {
    return this.#table.nextSerial(principal, Date.now());
  }

  async load(session: SessionRef): Promise<SessionRecord | undefined> {
    return this.#table.load(session, Date.now());
  }

  async change(session: SessionRef, change: SessionChange): Promise<LimitName | undefined> {
    const { entries, limit } = this.#table.change(session, change, Date.now());
    await this.#write(entries);
    return limit;
  }

  async end(session: SessionRef): Promise<boolean> {
    return await this.#write(this.#table.end(session, Date.now()));
  }

  async isEnded(session: SessionRef): Promise<boolean> {
    return this.#table.isEnded(session);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#journal?.[Symbol.asyncDispose]();
  }

  /** Resolves with whether the entries are written. */
  async #write(entries: readonly SessionEntry[]): Promise<boolean> {
    const journal = this.#journal;
    if (journal === undefined) return true;
    const written = await Promise.all(entries.map((entry) => journal.append(lineOf(entry))));
    return written.every(Boolean);
  }
}

function lineOf(entry: SessionEntry): string {
  return JSON.stringify(entry);
}

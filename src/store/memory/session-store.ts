import type { LimitName } from '../../limits.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../session-store.ts';
import { SessionTable } from '../session-table.ts';

/** Keeps the state of sessions in memory: it ends with the process, as the ids of such a process do. */
export class MemorySessionStore implements SessionStore {
  readonly failure = undefined;
  readonly #table: SessionTable;

  /** @param onLimit is called when a bound makes it refuse or remove something. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#table = new SessionTable(onLimit, Date.now());
  }

  async nextSerial(principal: string): Promise<number> {
    return this.#table.nextSerial(principal, Date.now());
  }

  async load(session: SessionRef): Promise<SessionRecord | undefined> {
    return this.#table.load(session, Date.now());
  }

  async change(session: SessionRef, change: SessionChange): Promise<LimitName | undefined> {
    const outcome = this.#table.change(session, change, Date.now());
    return typeof outcome === 'string' ? outcome : undefined;
  }

  async end(session: SessionRef): Promise<boolean> {
    this.#table.end(session, Date.now());
    return true;
  }

  async isEnded(session: SessionRef): Promise<boolean> {
    return this.#table.isEnded(session);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is open.
  }
}

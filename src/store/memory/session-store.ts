import type { LimitName } from '../../limits.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../session-store.ts';
import { SessionTable } from '../session-table.ts';

/** Stores session state in memory. It ends with the process, and so do the session ids. */
export class MemorySessionStore implements SessionStore {
  readonly failure = undefined;
  readonly #table: SessionTable;

  /** @param onLimit called when a bound refuses or removes something. */
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

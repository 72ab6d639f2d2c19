import { GatewayError } from '../../errors.ts';
import type { LimitName } from '../../limits.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../session-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';

const METHODS = STORES.sessions;

export interface PipedSessionStoreParts {
  readonly calls: PipeCalls;
  /** Returns the placement of a session of this process, as text; undefined if it has none. */
  readonly fenceOf: (session: SessionRef) => string | undefined;
  /** Called when a change is refused, because the session is not that of this process any more. */
  readonly onFenced: (session: SessionRef) => void;
}

/** The session store of the parent. A change carries the placement of the session, and is refused if another worker has claimed it since. */
export class PipedSessionStore implements SessionStore {
  readonly #parts: PipedSessionStoreParts;
  #failure: string | undefined;

  constructor(parts: PipedSessionStoreParts) {
    this.#parts = parts;
    parts.calls.serve(STORE_NOTICES.stateFailure, async (failure) => {
      this.#failure = failure;
    });
  }

  get failure(): string | undefined {
    return this.#failure;
  }

  async nextSerial(principal: string): Promise<number> {
    return await this.#parts.calls.call(METHODS.nextSerial, principal);
  }

  async load(session: SessionRef): Promise<SessionRecord | undefined> {
    return await this.#parts.calls.call(METHODS.load, session);
  }

  async change(session: SessionRef, change: SessionChange): Promise<LimitName | undefined> {
    const { calls, fenceOf, onFenced } = this.#parts;
    const reply = await calls.call(METHODS.change, { session, change, placement: fenceOf(session) });
    if (reply !== 'fenced') return reply;
    onFenced(session);
    const message = 'another process of the gateway serves this session now; send the request again';
    throw new GatewayError('store-unavailable', { message });
  }

  async end(session: SessionRef): Promise<boolean> {
    return await this.#parts.calls.call(METHODS.end, session);
  }

  async isEnded(session: SessionRef): Promise<boolean> {
    return await this.#parts.calls.call(METHODS.isEnded, session);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The parent has the journal.
  }
}

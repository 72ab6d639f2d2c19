import { GatewayError } from '../../errors.ts';
import type { SessionRef, SessionStore } from '../session-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

export interface PipedSessionStoreParts {
  readonly calls: PipeCalls;
  /** Returns the placement of a session of this process, as text; undefined if it has none. */
  readonly fenceOf: (session: SessionRef) => string | undefined;
  /** Called when a change is refused, because the session is not that of this process any more. */
  readonly onFenced: (session: SessionRef) => void;
}

/** Returns the session store of the parent. A change carries the placement of the session, and is refused if another worker has claimed it since. */
export function pipedSessionStore({ calls, fenceOf, onFenced }: PipedSessionStoreParts): SessionStore {
  const parent = remoteStore(calls, STORES.sessions);
  let failure: string | undefined;
  calls.serve(STORE_NOTICES.stateFailure, async (why) => {
    failure = why;
  });
  return {
    ...parent,
    get failure() {
      return failure;
    },
    change: async (session, change) => {
      const reply = await parent.change(session, change, fenceOf(session));
      if (reply !== 'fenced') return reply;
      onFenced(session);
      const message = 'another process of the gateway serves this session now; send the request again';
      throw new GatewayError('store-unavailable', { message });
    },
    [Symbol.asyncDispose]: async () => {
      // The parent has the journal.
    },
  };
}

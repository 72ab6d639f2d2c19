import type { Fencing, SessionStore } from '../session-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

export interface PipedSessionStoreParts extends Fencing {
  readonly calls: PipeCalls;
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
      if (reply === 'fenced') onFenced(session);
      return reply;
    },
    [Symbol.asyncDispose]: async () => {
      // The parent has the journal.
    },
  };
}

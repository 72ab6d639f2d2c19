import type { Fencing, SessionStore } from '../session-store.ts';
import { STATE_FAILURE, STORE_NOTICES, STORES } from './methods.ts';
import { fencedChange } from '../sessions/fenced-change.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

export interface PipedSessionStoreParts extends Fencing {
  readonly calls: PipeCalls;
}

/** Returns the session store of the parent. A change carries the placement of the session, and is refused if another worker has claimed it since. */
export function pipedSessionStore({ calls, ...fencing }: PipedSessionStoreParts): SessionStore {
  const parent = remoteStore(calls, STORES.sessions);
  let failure: string | undefined;
  let isTold = false;
  calls.serve(STORE_NOTICES.stateFailure, async (why) => {
    isTold = true;
    failure = why;
  });
  // It may have begun before this process. A notice that arrives with the reply is newer.
  calls.call(STATE_FAILURE, undefined).then(
    (why) => {
      if (!isTold) failure = why;
    },
    () => undefined,
  );
  return {
    ...parent,
    get failure() {
      return failure;
    },
    change: (session, change) => fencedChange(fencing, session, (fence) => parent.change(session, change, fence)),
    [Symbol.asyncDispose]: async () => {
      // The parent has the journal.
    },
  };
}

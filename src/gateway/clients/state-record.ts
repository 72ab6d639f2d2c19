import type { Logger } from 'pino';
import type { SessionStore } from '../../store/session-store.ts';
import type { Owners } from '../exchange/owners.ts';
import type { Session } from './session.ts';

interface StateRecordParts {
  readonly store: Pick<SessionStore, 'change'>;
  readonly owners: Pick<Owners, 'stillOwns'>;
  readonly log: Logger;
}

/**
 * Stores that an upstream keeps state for a session, so that the process that restores the session reports the loss of that state. Returns `moved` if
 * another process has got the session before that: it does not know of the state. A record that cannot be stored (`unrecorded`) is tried again by the
 * next answer of the upstream. Never rejects.
 */
export async function recordState(
  { store, owners, log }: StateRecordParts,
  session: Session,
  upstream: string,
): Promise<'recorded' | 'unrecorded' | 'moved'> {
  session.unrecordedStates?.delete(upstream);
  try {
    const refused = await store.change(session.ref, { kind: 'use', upstream });
    if (refused === undefined) return 'recorded';
    log.debug({ refused, upstream }, 'a restart will not report the loss of state');
    return refused === 'fenced' ? 'moved' : 'unrecorded';
  } catch (thrown) {
    log.debug({ err: thrown, upstream }, 'a restart will not report the loss of state');
    (session.unrecordedStates ??= new Set()).add(upstream);
    return (await owners.stillOwns(session.ref)) ? 'unrecorded' : 'moved';
  }
}

import type { Fencing, SessionRef, SessionStore } from '../session-store.ts';

/**
 * Makes a change that carries the placement of its session. A change that is refused is made once more if the session has another placement of this
 * process by then. A process whose lease has lapsed claims its sessions again.
 */
export async function fencedChange(
  { fenceOf, onFenced }: Fencing,
  session: SessionRef,
  change: (fence: string | undefined) => ReturnType<SessionStore['change']>,
): ReturnType<SessionStore['change']> {
  const fence = fenceOf(session);
  const reply = await change(fence);
  if (reply !== 'fenced') return reply;
  await onFenced(session);
  const current = fenceOf(session);
  return current === undefined || current === fence ? reply : await change(current);
}

import { isUnreadable, type Member } from '../../store/placement-table.ts';

/** A replica that has restarted at its address is a member twice for about one lease. */
const LEASES = 3;

/**
 * Returns the function that finds addresses that several living processes have, so that what is meant for one of them reaches another. It gets the
 * members of now, several times in a lease, and the monotonic time.
 *
 * @param onShared runs once for an address, as long as it is shared.
 */
export function sharedAddresses(
  leaseMs: number,
  onShared: (address: string) => void,
): (members: readonly Member[], nowMs: number) => void {
  /** When each process was seen first; monotonic ms. */
  let since = new Map<string, number>();
  let seenMs = -Infinity;
  let known: ReadonlySet<string> = new Set();
  return (members, nowMs) => {
    // A lease does not lapse while nobody can renew one.
    const before = nowMs - seenMs < leaseMs ? since : new Map<string, number>();
    since = new Map(members.map(({ process }) => [process, before.get(process) ?? nowMs]));
    seenMs = nowMs;
    const lasting = members.filter(
      (member) => !isUnreadable(member) && nowMs - (since.get(member.process) ?? nowMs) >= LEASES * leaseMs,
    );
    const owners = new Map<string, string>();
    const shared = new Set<string>();
    for (const { address, process } of lasting) {
      if ((owners.get(address) ?? process) !== process) shared.add(address);
      owners.set(address, process);
    }
    for (const address of shared) if (!known.has(address)) onShared(address);
    known = shared;
  };
}

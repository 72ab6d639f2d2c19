import { isUnreadable, type Member } from '../../store/placement-table.ts';

/** A replica that has restarted at its address is a member twice for about one lease. */
const LEASES = 3;

/** Finds addresses that several living processes have, so that what is meant for one of them reaches another. */
export class SharedAddresses {
  readonly #leaseMs: number;
  readonly #onShared: (address: string) => void;
  /** When each process was seen first; monotonic ms. */
  #since = new Map<string, number>();
  #seenMs = -Infinity;
  #shared: ReadonlySet<string> = new Set();

  /** @param onShared runs once for an address, as long as it is shared. */
  constructor(leaseMs: number, onShared: (address: string) => void) {
    this.#leaseMs = leaseMs;
    this.#onShared = onShared;
  }

  /** @param members those of now, seen several times in a lease. @param nowMs monotonic. */
  onMembers(members: readonly Member[], nowMs: number): void {
    // A lease does not lapse while nobody can renew one.
    const known = nowMs - this.#seenMs < this.#leaseMs ? this.#since : new Map<string, number>();
    this.#since = new Map(members.map(({ process }) => [process, known.get(process) ?? nowMs]));
    this.#seenMs = nowMs;
    const lasting = members.filter(
      (member) => !isUnreadable(member) && nowMs - (this.#since.get(member.process) ?? nowMs) >= LEASES * this.#leaseMs,
    );
    const owners = new Map<string, string>();
    const shared = new Set<string>();
    for (const { address, process } of lasting) {
      if ((owners.get(address) ?? process) !== process) shared.add(address);
      owners.set(address, process);
    }
    for (const address of shared) if (!this.#shared.has(address)) this.#onShared(address);
    this.#shared = shared;
  }
}

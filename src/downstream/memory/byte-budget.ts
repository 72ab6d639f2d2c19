import { ArraySet } from '../../small-collections.ts';
import { getOrMake } from '../../map-entries.ts';

/** An object that keeps bytes for one principal and can give some of them up. */
export interface ByteHolder {
  readonly heldBytes: number;
  /** Gives up at least `bytes`, or all that it can. Subtracts them from its account before it returns. */
  shed(bytes: number): void;
}

/** The account of one holder in a budget. */
export interface ByteAccount {
  add(bytes: number): void;
  subtract(bytes: number): void;
  /** Removes the holder, and subtracts all its bytes. The account has no effect afterwards. */
  leave(): void;
}

export interface BudgetLimits {
  readonly totalBytes: number;
  readonly principalBytes: number;
}

/** Fraction of its bytes that the biggest holder gives up at once, so that the next additions find room. */
const SHED_FRACTION = 8;

/** All holders of one principal. */
interface Share {
  /** An array, because a holder comes and goes with each large answer: decision 11. */
  readonly holders: ArraySet<ByteHolder>;
  bytes: number;
}

/**
 * Bounds the bytes of many holders, per principal and in total.
 *
 * If a bound is exceeded, the biggest holder of that principal (or of the principal with the most bytes) sheds first.
 */
export class ByteBudget {
  readonly #limits: BudgetLimits;
  readonly #onShed: () => void;
  readonly #shares = new Map<string, Share>();
  #bytes = 0;

  /** @param onShed called each time a holder sheds. */
  constructor(limits: BudgetLimits, onShed: () => void) {
    this.#limits = limits;
    this.#onShed = onShed;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Registers a holder without bytes. */
  join(principal: string, holder: ByteHolder): ByteAccount {
    const joined = getOrMake(this.#shares, principal, () => ({ holders: new ArraySet<ByteHolder>(), bytes: 0 }));
    joined.holders.add(holder);
    let held = 0;
    let hasLeft = false;
    return {
      add: (bytes) => {
        if (hasLeft) return;
        held += bytes;
        this.#bytes += bytes;
        joined.bytes += bytes;
        if (joined.bytes > this.#limits.principalBytes || this.#bytes > this.#limits.totalBytes) this.#enforce(joined);
      },
      subtract: (bytes) => {
        if (hasLeft) return;
        held -= bytes;
        this.#bytes -= bytes;
        joined.bytes -= bytes;
      },
      leave: () => {
        if (hasLeft) return;
        hasLeft = true;
        this.#bytes -= held;
        joined.bytes -= held;
        joined.holders.delete(holder);
        if (joined.holders.size === 0 && this.#shares.get(principal) === joined) this.#shares.delete(principal);
      },
    };
  }

  /** Makes the biggest holders shed until this many bytes are left, or nothing more can be shed. */
  shedTo(bytes: number): void {
    while (this.#bytes > bytes) {
      const most = biggest(this.#shares.values(), (share) => share.bytes);
      if (most === undefined || !this.#shed(most, this.#bytes - bytes)) return;
    }
  }

  #enforce(share: Share): void {
    const { principalBytes, totalBytes } = this.#limits;
    while (share.bytes > principalBytes && this.#shed(share, share.bytes - principalBytes));
    this.shedTo(totalBytes);
  }

  /** Makes the biggest holder shed. Returns false if nothing more can be shed. */
  #shed(share: Share, bytes: number): boolean {
    const holder = biggest(share.holders, ({ heldBytes }) => heldBytes);
    if (holder === undefined || holder.heldBytes === 0) return false;
    const before = share.bytes;
    holder.shed(Math.max(bytes, Math.ceil(holder.heldBytes / SHED_FRACTION)));
    this.#onShed();
    return share.bytes < before;
  }
}

function biggest<T>(items: Iterable<T>, bytesOf: (item: T) => number): T | undefined {
  let found: T | undefined;
  let most = -1;
  for (const item of items) {
    const bytes = bytesOf(item);
    if (bytes <= most) continue;
    found = item;
    most = bytes;
  }
  return found;
}

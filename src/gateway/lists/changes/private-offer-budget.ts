import type { Offer } from '../../../catalog/offer.ts';
import { type LimitName, LIMITS } from '../../../limits.ts';
import { getOrMake, KeyedSums } from '../../../map-entries.ts';

/** Memory of an item besides its text, and of each character: the item as listed, its published text and the catalog of it. */
const ITEM_BYTES = 1_024;
const CHAR_BYTES = 4;

/** A connection with lists of its own. */
interface Owner {
  readonly upstream: string;
}

/** The memory of a kept offer, and the number of connections that have it. */
interface Kept {
  readonly bytes: number;
  count: number;
}

/** Bounds the memory of lists that single connections have for themselves, per upstream and in total. Equal lists of one upstream count once. */
export class PrivateOfferBudget {
  /** By upstream, since two upstreams may have the same offer. */
  readonly #kept = new Map<string, Map<Offer, Kept>>();
  /** Offers by connection, then by capability key. */
  readonly #owned = new Map<Owner, Map<string, Offer>>();
  readonly #bytes = new KeyedSums();

  /**
   * Counts the offer of a connection for clients with these capabilities, in place of the one before.
   *
   * @returns the limit that it would exceed; it is not counted then, and must not be kept.
   */
  keep(owner: Owner, capabilityKey: string, offer: Offer): LimitName | undefined {
    const { upstream } = owner;
    this.remove(owner, capabilityKey);
    const known = this.#kept.get(upstream)?.get(offer);
    if (known === undefined) {
      const bytes = estimatedBytes(offer);
      if (this.#bytes.of(upstream) + bytes > LIMITS.privateListBytesPerUpstream) return 'privateListBytesPerUpstream';
      if (this.#bytes.total + bytes > LIMITS.privateListBytes) return 'privateListBytes';
      this.#bytes.add(upstream, bytes);
      getOrMake(this.#kept, upstream, () => new Map()).set(offer, { bytes, count: 1 });
    } else known.count++;
    getOrMake(this.#owned, owner, () => new Map()).set(capabilityKey, offer);
    return undefined;
  }

  /** Releases the offer of a connection for clients with these capabilities, if it is counted. */
  remove(owner: Owner, capabilityKey: string): void {
    const owned = this.#owned.get(owner);
    const offer = owned?.get(capabilityKey);
    if (owned === undefined || offer === undefined) return;
    owned.delete(capabilityKey);
    if (owned.size === 0) this.#owned.delete(owner);
    this.#release(owner.upstream, offer);
  }

  /** Releases all offers of a connection. Returns whether it has any. */
  removeAll(owner: Owner): boolean {
    const keys = [...(this.#owned.get(owner)?.keys() ?? [])];
    for (const capabilityKey of keys) this.remove(owner, capabilityKey);
    return keys.length > 0;
  }

  /** Returns the offer of a connection for clients with these capabilities, if it is counted. */
  offerOf(owner: Owner, capabilityKey: string): Offer | undefined {
    return this.#owned.get(owner)?.get(capabilityKey);
  }

  /** Returns the offers that connections to an upstream have. */
  offersOf(upstream: string): ReadonlySet<Offer> {
    return new Set(this.#kept.get(upstream)?.keys());
  }

  #release(upstream: string, offer: Offer): void {
    const offers = this.#kept.get(upstream);
    const kept = offers?.get(offer);
    if (offers === undefined || kept === undefined || --kept.count > 0) return;
    offers.delete(offer);
    if (offers.size === 0) this.#kept.delete(upstream);
    this.#bytes.add(upstream, -kept.bytes);
  }
}

function estimatedBytes({ tools, prompts, resources, templates, instructions = '' }: Offer): number {
  let bytes = CHAR_BYTES * instructions.length;
  for (const items of [tools, prompts, resources, templates]) {
    for (const item of items) bytes += ITEM_BYTES + CHAR_BYTES * item.toString().length;
  }
  return bytes;
}

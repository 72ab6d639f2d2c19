import { commonKey, isCommonKey, type Offer, type OfferKey, offerKeyText } from '../../catalog/offer.ts';
import { LIMITS } from '../../limits.ts';
import { type Era, otherEra } from '../../protocol/revisions.ts';

export interface KeptOffer {
  readonly key: OfferKey;
  readonly offer: Offer;
  /** The time when this process listed the upstream for it; monotonic ms. Undefined if another process did. */
  listedMs: number | undefined;
  /** The time for which the lists may be cached, as the last reading has stated it. Default: that of the offer. */
  readonly ttlMs?: number | undefined;
}

/** Returns the time for which lists may be cached from their last reading on; 0 if the upstream states none. */
export function statedMs({ offer: { caching }, ttlMs }: KeptOffer): number {
  return ttlMs ?? caching?.ttlMs ?? 0;
}

/** The offers of one upstream that are in memory, the least recently listed first. */
export class KeptOffers {
  readonly #byKey = new Map<string, KeptOffer>();
  /** False if no connection declares the capabilities of clients. Then there are only offers for clients of any capabilities. */
  areByCapabilities = true;
  /** The era that the upstream is known not to support. Its offers of that era are outdated. */
  withoutEra: Era | undefined;
  /** Those that single connections have for themselves. */
  own: ReadonlySet<Offer> = new Set();
  /** The number of offers up to which it need not be asked which of them clients have. */
  #unchecked: number = LIMITS.offersPerUpstream;

  get(key: OfferKey): KeptOffer | undefined {
    return this.#byKey.get(offerKeyText(key));
  }

  /** Returns the offer of this key, else the one for clients of any capabilities. */
  in(key: OfferKey): KeptOffer | undefined {
    return this.get(key) ?? this.get({ ...key, capabilityKey: '' });
  }

  /** Returns the offer for clients of this key: the one listed in their era, else in the other one. */
  for(key: OfferKey): KeptOffer | undefined {
    const own = this.withoutEra === key.era ? undefined : this.in(key);
    return own ?? this.in({ ...key, era: otherEra(key.era) });
  }

  /** Returns the offer of an era for all clients, else the one for some of them that has the most tools. */
  widest(era: Era): Offer | undefined {
    const common = this.get(commonKey(era))?.offer;
    if (common !== undefined) return common;
    const offers = [...this.#byKey.values()].filter(({ key }) => key.era === era).map(({ offer }) => offer);
    return offers.toSorted((a, b) => b.tools.length - a.tools.length)[0];
  }

  /** Returns the widest offer for clients of this era: of their era, else of the other one. */
  widestFor(era: Era): Offer | undefined {
    const own = this.withoutEra === era ? undefined : this.widest(era);
    return own ?? this.widest(otherEra(era));
  }

  values(): Iterable<KeptOffer> {
    return this.#byKey.values();
  }

  /** Returns keys of clients of this era, one for each of the different offers that they get, without those of principals. */
  differingKeys(era: Era): readonly OfferKey[] {
    const keys = new Map<Offer, OfferKey>();
    for (const { capabilityKey, audience } of [...this.#byKey.values()].map(({ key }) => key)) {
      const key = { era, capabilityKey, audience };
      const kept = audience === '' ? this.for(key) : undefined;
      if (kept !== undefined) keys.set(kept.offer, key);
    }
    return [...keys.values()];
  }

  /** Returns the offers that clients get. */
  inUse(): readonly Offer[] {
    const kept = [...this.#byKey.values()].filter(({ key }) => key.era !== this.withoutEra);
    return [...kept.map(({ offer }) => offer), ...this.own];
  }

  /** Returns whether clients may get an offer of this key. */
  isUsable({ capabilityKey }: OfferKey): boolean {
    return this.areByCapabilities || capabilityKey === '';
  }

  /** Keeps an offer as the last to be removed. */
  set(kept: KeptOffer): void {
    this.remove(kept.key);
    this.#byKey.set(offerKeyText(kept.key), kept);
  }

  remove(key: OfferKey): void {
    this.#byKey.delete(offerKeyText(key));
  }

  /**
   * Returns the keys of the offers that are too many, the least recently listed first. Those for all clients and those that clients have now
   * are not counted.
   *
   * @param usedKeys returns the texts of the keys that clients have.
   */
  excess(usedKeys: () => ReadonlySet<string>): readonly OfferKey[] {
    if (this.#byKey.size <= this.#unchecked) return [];
    const used = usedKeys();
    const keys = [...this.#byKey.values()].map(({ key }) => key);
    const unused = keys.filter((key) => !isCommonKey(key) && !used.has(offerKeyText(key)));
    this.#unchecked = this.#byKey.size - unused.length + LIMITS.offersPerUpstream;
    return unused.slice(0, Math.max(0, unused.length - LIMITS.offersPerUpstream));
  }

  /** Marks the offers of an era for an audience as outdated. @param except that stays valid. */
  expire(era: Era, audience: string, except?: KeptOffer): void {
    for (const kept of this.#byKey.values()) {
      const isMeant = kept !== except && kept.key.era === era && kept.key.audience === audience;
      if (isMeant && kept.listedMs !== undefined) kept.listedMs = Number.NEGATIVE_INFINITY;
    }
  }

  /** Marks the offers as listed by another process, and both eras as possible. Those of single connections are of the former upstream. */
  onReplaced(): void {
    this.withoutEra = undefined;
    this.own = new Set();
    for (const kept of this.#byKey.values()) kept.listedMs = undefined;
  }
}

import type { OfferKey } from '../../catalog/offer.ts';
import { EVERYBODY } from '../../upstream/connection-key.ts';
import type { Upstream } from '../exchange/connection-holder.ts';
import type { Offers } from './offers.ts';
import type { StartRecords } from './start-records.ts';

/** Lists of remote upstreams are fetched again after this time, changed or not. */
const LIST_TTL_MS = 300_000;
/** Lists with a shorter time to live are not fetched more often than this. */
const LEAST_TTL_MS = 5_000;
/** Younger lists on disk start no process. They are fetched again when it starts for a call. */
const FRESH_ON_DISK_MS = 3_600_000;
/** The part of a stated time to live after which lists are fetched again, so that clients may keep them for the rest meanwhile. */
const REFETCHED_AT = 0.8;

/** Decides by the age of lists whether they are fetched again. */
export class ListAges {
  readonly #offers: Pick<Offers, 'ageMs' | 'exactOffer' | 'statedMs'>;
  readonly #records: StartRecords;

  constructor(offers: Pick<Offers, 'ageMs' | 'exactOffer' | 'statedMs'>, records: StartRecords) {
    this.#offers = offers;
    this.#records = records;
  }

  /** Returns whether the lists of an upstream for this key need not be fetched now. */
  areFresh(upstream: Upstream, key: OfferKey): boolean {
    const ageMs = this.#offers.ageMs(upstream.id, key);
    return ageMs === undefined ? this.#areFreshOnDisk(upstream, key) : ageMs < this.#ttlMs(upstream, key);
  }

  /**
   * Returns the ms until lists are due to be fetched again; Infinity if they are not. Due are those with a stated time to live, and those of one
   * principal that could not be read. Failed listings for everybody are repeated without a request.
   */
  leftMs(upstream: Upstream, key: OfferKey): number {
    const ageMs = this.#offers.ageMs(upstream.id, key);
    const isMissing = ageMs === undefined && key.audience !== EVERYBODY;
    if (this.#offers.statedMs(upstream.id, key) === 0) return isMissing ? LEAST_TTL_MS : Infinity;
    const leftMs = this.#ttlMs(upstream, key) - (ageMs ?? Infinity);
    // Those that are due already are being fetched, or that has failed.
    return leftMs > 0 ? leftMs : LEAST_TTL_MS;
  }

  /** Returns how long lists are not fetched again. A modern upstream may state a shorter time than the default. */
  #ttlMs(upstream: Upstream, key: OfferKey): number {
    const statedMs = this.#offers.statedMs(upstream.id, key);
    if (statedMs > 0) return Math.min(Math.max(REFETCHED_AT * statedMs, LEAST_TTL_MS), LIST_TTL_MS);
    return upstream.config.target.kind === 'stdio' ? Infinity : LIST_TTL_MS;
  }

  /** Returns whether lists from disk are enough. A required upstream always starts: the gateway is not ready before. */
  #areFreshOnDisk({ id, config, isProcess }: Upstream, key: OfferKey): boolean {
    if (!isProcess || config.required || this.#records.hasFailed(id)) return false;
    return this.#offers.exactOffer(id, key) !== undefined && this.#records.listedAgeMs(id) < FRESH_ON_DISK_MS;
  }
}

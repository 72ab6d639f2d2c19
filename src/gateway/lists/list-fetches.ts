import { availableParallelism } from 'node:os';
import { type OfferKey, offerKeyText } from '../../catalog/offer.ts';
import { GatewayError, toGatewayError } from '../../errors.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { getOrMake, setLatest } from '../../map-entries.ts';
import type { Era } from '../../protocol/revisions.ts';
import { EVERYBODY } from '../../upstream/connection-key.ts';
import { isFailed } from '../../upstream/lifecycle/lifecycle.ts';
import { lacksCredentials } from '../../upstream/link/era-evidence.ts';
import type { ClientFeatures } from '../../upstream/link/link.ts';
import { workTurn } from '../../work-turn.ts';
import type { Upstream } from '../exchange/connection-holder.ts';
import { StartQueue } from './start-queue.ts';
import type { StartRecords } from './start-records.ts';

/** Processes that start at the same time. Each uses about half a core for a second. */
const PROCESS_STARTS = Math.min(16, Math.max(4, 2 * availableParallelism()));
const REMOTE_STARTS = 32;

/** The largest number of failures of an upstream that are remembered. */
const MAX_FAILURES = 1_024;

/** A client that an upstream is listed for. */
export interface ListingClient extends ClientFeatures {
  readonly era: Era;
  /** Key of its principal; {@link GATEWAY} for none. */
  readonly principal: string;
}

/** A fetch that waits or runs. */
interface Fetch {
  readonly upstream: Upstream;
  readonly fetched: Promise<boolean>;
  /** Lets the fetch begin in the turn of this principal too. */
  readonly queueFor: (principal: string) => void;
}

/** The end of a fetch of the lists of one principal, if it has failed. */
export interface FailedFetch {
  readonly error: GatewayError;
  /** True if the credentials of the principal are the cause, which a repetition does not change. */
  readonly isRefused: boolean;
  /** Monotonic. */
  readonly atMs: number;
}

/** Fetches lists of upstreams, a bounded number at a time. Requests for the same lists share a fetch. */
export class ListFetches {
  readonly #records: StartRecords;
  readonly #onFetched: (fetchId: string) => void;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #processStarts = new StartQueue(PROCESS_STARTS);
  readonly #remoteStarts = new StartQueue(REMOTE_STARTS);
  /** Queued and running fetches, by {@link fetchIdOf}. */
  readonly #fetches = new Map<string, Fetch>();
  /** The last fetches of the lists of single principals, by upstream, then as {@link #fetches}. The state of the upstream has no failure of one principal. */
  readonly #failed = new WeakMap<Upstream, Map<string, FailedFetch>>();

  /** @param records get the outcome of each fetch. @param onFetched runs after each fetch that succeeds. */
  constructor(records: StartRecords, onFetched: (fetchId: string) => void, onLimit: (limit: LimitName) => void) {
    this.#records = records;
    this.#onFetched = onFetched;
    this.#onLimit = onLimit;
  }

  /** Returns the fetch of an upstream under way. One that a reload has replaced meanwhile may still be listing under the same id. */
  running(upstream: Upstream, fetchId: string): Promise<boolean> | undefined {
    return this.#running(upstream, fetchId)?.fetched;
  }

  #running(upstream: Upstream, fetchId: string): Fetch | undefined {
    const running = this.#fetches.get(fetchId);
    return running?.upstream === upstream ? running : undefined;
  }

  /** Returns the failure of the last fetch of the lists of one principal; undefined if it has succeeded, or another one has begun. */
  failed(upstream: Upstream, fetchId: string): FailedFetch | undefined {
    return this.#failed.get(upstream)?.get(fetchId);
  }

  #startsOf({ config }: Upstream): StartQueue {
    return config.target.kind === 'stdio' ? this.#processStarts : this.#remoteStarts;
  }

  /** Returns whether too many fetches wait for another one of this client. */
  isFullFor(upstream: Upstream, { principal }: ListingClient): boolean {
    return this.#startsOf(upstream).fullFor(principal) !== undefined;
  }

  /**
   * Resolves with true if the lists were fetched. The upstream's state has the reason of a failure, unless the lists are those of one
   * principal; see {@link failed}.
   *
   * @throws {GatewayError} `overloaded`, at once, if too many fetches wait.
   */
  fetch(upstream: Upstream, client: ListingClient, begin: 'now' | 'in turn' = 'in turn'): Promise<boolean> {
    const key = offerKeyFor(upstream, client);
    const id = fetchIdOf(upstream, key);
    const { principal } = client;
    const running = this.#running(upstream, id);
    if (running !== undefined) {
      running.queueFor(principal);
      return running.fetched;
    }
    const starts = this.#startsOf(upstream);
    const full = starts.fullFor(principal);
    if (full !== undefined) {
      this.#onLimit(full);
      throw tooManyWaiting(full);
    }
    this.#failed.get(upstream)?.delete(id);
    const records = this.#records;
    const { promise: listed, resolve } = Promise.withResolvers<void>();
    let isBegun = false;
    const list = async () => {
      if (begin === 'in turn') await workTurn();
      await upstream.refresh(client.era, client, key.audience);
    };
    const start = async () => {
      // Nothing is left to do when it has begun in the turn of another principal.
      if (isBegun) return;
      isBegun = true;
      const listing = list();
      resolve(listing);
      await listing;
    };
    const queued = new Set<string>();
    const queueFor = (owner: string) => {
      if (isBegun || queued.has(owner) || starts.fullFor(owner) !== undefined) return;
      queued.add(owner);
      starts.run(owner, start);
    };
    const fetched = listed
      .then(
        () => {
          if (!upstream.isRetired) records.record(upstream.id, false);
          this.#onFetched(id);
          return true;
        },
        (thrown: unknown) => {
          if (key.audience !== EVERYBODY) this.#keep(upstream, id, toGatewayError(thrown));
          if (isFailed(upstream.lifecycle) && !upstream.isRetired) records.record(upstream.id, true);
          return false;
        },
      )
      .finally(() => {
        if (this.#fetches.get(id)?.upstream === upstream) this.#fetches.delete(id);
      });
    this.#fetches.set(id, { upstream, fetched, queueFor });
    queueFor(principal);
    return fetched;
  }

  #keep(upstream: Upstream, fetchId: string, error: GatewayError): void {
    const failed = getOrMake(this.#failed, upstream, () => new Map<string, FailedFetch>());
    const { cause } = error;
    const isRefused = lacksCredentials(error) || (cause instanceof GatewayError && lacksCredentials(cause));
    setLatest(failed, fetchId, { error, isRefused, atMs: performance.now() }, MAX_FAILURES);
  }
}

function tooManyWaiting(limit: LimitName): GatewayError {
  const message = `${LIMITS[limit]} listings of servers wait for their turn already; try again later`;
  return new GatewayError('overloaded', { message, data: { limit } });
}

/** Returns the id of a fetch: requests for the same lists of an upstream share one. */
export function fetchIdOf({ id }: Upstream, key: OfferKey): string {
  return `${id} ${offerKeyText(key)}`;
}

/** Returns the key of the offer that an upstream is listed for, as far as its era is known. */
export function offerKeyFor(upstream: Upstream, { era, capabilityKey, principal }: ListingClient): OfferKey {
  return { era: upstream.servingEra(era) ?? era, capabilityKey, audience: upstream.audienceOf(principal) };
}

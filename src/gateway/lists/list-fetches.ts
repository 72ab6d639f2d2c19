import { availableParallelism } from 'node:os';
import { type OfferKey, offerKeyText } from '../../catalog/offer.ts';
import type { Era } from '../../protocol/revisions.ts';
import { isFailed } from '../../upstream/lifecycle/lifecycle.ts';
import type { ClientFeatures } from '../../upstream/link/link.ts';
import { workTurn } from '../../work-turn.ts';
import type { Upstream } from '../exchange/connection-holder.ts';
import { StartQueue } from './start-queue.ts';
import type { StartRecords } from './start-records.ts';

/** Processes that start at the same time. Each uses about half a core for a second. */
const PROCESS_STARTS = Math.min(16, Math.max(4, 2 * availableParallelism()));
const REMOTE_STARTS = 32;

/** A client that an upstream is listed for. */
export interface ListingClient extends ClientFeatures {
  readonly era: Era;
  /** Key of its principal. */
  readonly principal: string;
}

/** Fetches lists of upstreams, a bounded number at a time. Requests for the same lists share a fetch. */
export class ListFetches {
  readonly #records: StartRecords;
  readonly #onFetched: (fetchId: string) => void;
  readonly #processStarts = new StartQueue(PROCESS_STARTS);
  readonly #remoteStarts = new StartQueue(REMOTE_STARTS);
  /** Queued and running fetches, by {@link fetchIdOf}. */
  readonly #fetches = new Map<string, { readonly upstream: Upstream; readonly fetched: Promise<boolean> }>();

  /** @param records get the outcome of each fetch. @param onFetched runs after each fetch that succeeds. */
  constructor(records: StartRecords, onFetched: (fetchId: string) => void) {
    this.#records = records;
    this.#onFetched = onFetched;
  }

  /** Returns the fetch of an upstream under way. One that a reload has replaced meanwhile may still be listing under the same id. */
  running(upstream: Upstream, fetchId: string): Promise<boolean> | undefined {
    const running = this.#fetches.get(fetchId);
    return running?.upstream === upstream ? running.fetched : undefined;
  }

  /** Resolves with true if the lists were fetched. The upstream's state has the reason of a failure. */
  fetch(upstream: Upstream, client: ListingClient, begin: 'now' | 'in turn' = 'in turn'): Promise<boolean> {
    const key = offerKeyFor(upstream, client);
    const id = fetchIdOf(upstream, key);
    const running = this.running(upstream, id);
    if (running !== undefined) return running;
    const records = this.#records;
    const starts = upstream.config.target.kind === 'stdio' ? this.#processStarts : this.#remoteStarts;
    const fetched = starts
      .run(async () => {
        if (begin === 'in turn') await workTurn();
        await upstream.refresh(client.era, client, key.audience);
      })
      .then(
        () => {
          if (!upstream.isRetired) records.record(upstream.id, false);
          this.#onFetched(id);
          return true;
        },
        () => {
          if (isFailed(upstream.lifecycle) && !upstream.isRetired) records.record(upstream.id, true);
          return false;
        },
      )
      .finally(() => {
        if (this.#fetches.get(id)?.upstream === upstream) this.#fetches.delete(id);
      });
    this.#fetches.set(id, { upstream, fetched });
    return fetched;
  }
}

/** Returns the id of a fetch: requests for the same lists of an upstream share one. */
export function fetchIdOf({ id }: Upstream, key: OfferKey): string {
  return `${id} ${offerKeyText(key)}`;
}

/** Returns the key of the offer that an upstream is listed for, as far as its era is known. */
export function offerKeyFor(upstream: Upstream, { era, capabilityKey, principal }: ListingClient): OfferKey {
  return { era: upstream.servingEra(era) ?? era, capabilityKey, audience: upstream.audienceOf(principal) };
}

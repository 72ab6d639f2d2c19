import { EVERYBODY } from '../../upstream/connection-key.ts';
import { retryUntilDone } from '../../upstream/lifecycle/retry-until-done.ts';
import { SingleRuns } from '../../upstream/single-runs.ts';
import type { ConnectionHolder, Upstream } from '../exchange/connection-holder.ts';
import { fetchIdOf, type ListFetches, type ListingClient, offerKeyFor } from './list-fetches.ts';

const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 60_000;

/**
 * Repeats failed fetches of the lists of one principal without a request, while a client of it has a stream for announced changes. Upstreams
 * repeat those for everybody.
 */
export class ListeningRetries {
  readonly #fetches: Pick<ListFetches, 'failed'>;
  readonly #fetchIfStale: (upstream: Upstream, client: ListingClient) => Promise<boolean> | undefined;
  readonly #runs = new SingleRuns<void>();

  /** @param fetchIfStale as the fetches that may fail are begun. */
  constructor(
    fetches: Pick<ListFetches, 'failed'>,
    fetchIfStale: (upstream: Upstream, client: ListingClient) => Promise<boolean> | undefined,
  ) {
    this.#fetches = fetches;
    this.#fetchIfStale = fetchIfStale;
  }

  /** Repeats a fetch for a holder if it fails. A refusal is not repeated: the next request may come with other credentials. */
  async onFetch(
    holder: ConnectionHolder,
    upstream: Upstream,
    client: ListingClient,
    fetched: Promise<boolean>,
  ): Promise<void> {
    const key = offerKeyFor(upstream, client);
    if (key.audience === EVERYBODY || (await fetched)) return;
    const attempt = async () => {
      const isRefused = this.#fetches.failed(upstream, fetchIdOf(upstream, offerKeyFor(upstream, client)))?.isRefused;
      if (isRefused === true || upstream.isRetired || upstream.lifecycle.phase === 'stopped') return;
      // A client may open its stream again.
      const isFetched = holder.streamCount > 0 && (await this.#fetchIfStale(upstream, client));
      if (isFetched === false) throw new Error('lists not fetched');
    };
    const pauseMs = (retry: number) => Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (retry - 1));
    await this.#runs.run(`${holder.key} ${upstream.id}`, () => retryUntilDone(attempt, pauseMs, holder.closed));
  }
}

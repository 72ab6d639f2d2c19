import type { View } from '../../catalog/view.ts';
import type { Era } from '../../protocol/revisions.ts';
import type { ClientFeatures } from '../../upstream/link.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { atMost } from '../exchange/at-most.ts';
import type { Offers } from './offers.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** How long a client waits for lists of upstreams that nothing is known of. Clients give up on a whole server after 10 s. */
const FIRST_WAIT_MS = 8_000;
/** How long when something is known, only not yet as seen by clients with these features or of this era. */
const FEATURES_WAIT_MS = 3_000;
/** Remote servers' lists are asked for again after this long, told of a change or not. A process started afresh says the same. */
const LIST_TTL_MS = 300_000;
/** A server that lets its lists be kept only so shortly is not asked more often. */
const LEAST_TTL_MS = 5_000;
/** The lists of a holder are not checked again within this time. */
const CHECKED_MS = 30_000;

interface Check {
  readonly atMs: number;
  /** Undefined once it is over. */
  running: Promise<void> | undefined;
}

/** Fetches the lists that clients need before they are answered, in the era of each client, in bounded time. */
export class ListRefresher {
  readonly #views: ReadonlyMap<string, View>;
  readonly #upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>;
  readonly #offers: Offers;
  /** The last check for each holder. Requests meanwhile wait for the same one. */
  readonly #recent = new WeakMap<ConnectionHolder, Check>();
  /** When a client waited in vain for an upstream; monotonic ms. By upstream and era. */
  readonly #silentSinceMs = new Map<string, number>();

  constructor(
    views: ReadonlyMap<string, View>,
    upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>,
    offers: Offers,
  ) {
    this.#views = views;
    this.#upstreams = upstreams;
    this.#offers = offers;
  }

  /** Runs before a client gets instructions and capabilities, which come from the lists. */
  async awaitFirstLists(view: string, client: Era): Promise<void> {
    const unknown = new Map<string, Promise<boolean>>();
    const knownInOtherEra = new Map<string, Promise<boolean>>();
    for (const upstream of this.#of(view)) {
      const isKnown = this.#offers.get(upstream.id, likelyEra(upstream, client), '') !== undefined;
      const refreshing = this.#refreshIfStale(upstream, client, undefined);
      if (isKnown || refreshing === undefined) continue;
      const isKnownAtAll = this.#offers.best(upstream.id, client, '') !== undefined;
      (isKnownAtAll ? knownInOtherEra : unknown).set(upstream.id, refreshing);
    }
    const waits = [this.#await(unknown, client, FIRST_WAIT_MS), this.#await(knownInOtherEra, client, FEATURES_WAIT_MS)];
    await Promise.all(waits);
  }

  /** Runs before a list is answered. Undefined where there is nothing to wait for. */
  refreshFor(holder: ConnectionHolder): Promise<void> | undefined {
    const now = performance.now();
    const before = this.#recent.get(holder);
    if (before !== undefined && now - before.atMs <= CHECKED_MS) return before.running;
    const running = this.#refreshFor(holder);
    const check: Check = { atMs: now, running };
    this.#recent.set(holder, check);
    return running.then(() => (check.running = undefined));
  }

  async #refreshFor(holder: ConnectionHolder): Promise<void> {
    const unknown = new Map<string, Promise<boolean>>();
    for (const upstream of this.#of(holder.view)) {
      const capabilityKey = upstream.isPersonal ? holder.capabilityKey : '';
      const isKnown = await this.#offers.load(upstream.id, likelyEra(upstream, holder.era), capabilityKey);
      const refreshing = this.#refreshIfStale(upstream, holder.era, capabilityKey === '' ? undefined : holder);
      if (!isKnown && refreshing !== undefined) unknown.set(upstream.id, refreshing);
    }
    await this.#await(unknown, holder.era, FEATURES_WAIT_MS);
  }

  /** An upstream that is down does not keep each new client waiting as long as the first: they are notified later. */
  async #await(unknown: Map<string, Promise<boolean>>, client: Era, limitMs: number): Promise<void> {
    for (const [id, refreshing] of unknown) {
      if (this.#isSilent(id, client)) unknown.delete(id);
      else void refreshing.then((isHad) => isHad && unknown.delete(id));
    }
    if (unknown.size === 0) return;
    await atMost([...unknown.values()], limitMs);
    for (const id of unknown.keys()) this.#silentSinceMs.set(`${id} ${client}`, performance.now());
  }

  /** Whether a client waited for it in vain, and it was not listed since. */
  #isSilent(id: string, client: Era): boolean {
    const sinceMs = this.#silentSinceMs.get(`${id} ${client}`);
    const upstream = this.#upstreams.get(id);
    if (sinceMs === undefined || upstream === undefined) return false;
    const ageMs = this.#offers.ageMs(id, likelyEra(upstream, client), '');
    return ageMs === undefined || performance.now() - ageMs < sinceMs;
  }

  *#of(view: string): Iterable<Upstream<Exchange, ConnectionHolder>> {
    for (const { id } of this.#views.get(view)?.upstreams ?? []) {
      const upstream = this.#upstreams.get(id);
      if (upstream !== undefined && upstream.config.problem === undefined) yield upstream;
    }
  }

  /** A modern upstream may name a time for which its lists hold; it is believed up to the time that holds for all. */
  #ttlMs({ id, config }: Upstream<Exchange, ConnectionHolder>, era: Era, capabilityKey: string): number {
    const said = this.#offers.get(id, era, capabilityKey)?.caching?.ttlMs ?? 0;
    if (said > 0) return Math.min(Math.max(said, LEAST_TTL_MS), LIST_TTL_MS);
    return config.target.kind === 'stdio' ? Number.POSITIVE_INFINITY : LIST_TTL_MS;
  }

  #refreshIfStale(
    upstream: Upstream<Exchange, ConnectionHolder>,
    client: Era,
    features: ClientFeatures | undefined,
  ): Promise<boolean> | undefined {
    const era = likelyEra(upstream, client);
    const capabilityKey = features?.capabilityKey ?? '';
    const ageMs = this.#offers.ageMs(upstream.id, era, capabilityKey);
    if (ageMs !== undefined && ageMs < this.#ttlMs(upstream, era, capabilityKey)) return undefined;
    // The upstream's state tells why it failed; the client gets the lists that are known.
    return upstream.refresh(client, features).then(
      () => true,
      () => false,
    );
  }
}

/** The era in which an upstream is listed for clients of this one, as far as is known. */
function likelyEra(upstream: Upstream<Exchange, ConnectionHolder>, client: Era): Era {
  return upstream.servingEra(client) ?? client;
}

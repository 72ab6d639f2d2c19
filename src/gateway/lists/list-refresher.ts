import type { View } from '../../catalog/view.ts';
import type { ClientFeatures } from '../../upstream/link.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { atMost } from '../exchange/at-most.ts';
import type { Offers } from './offers.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** How long a client waits for lists of upstreams that nothing is known of. Clients give up on a whole server after 10 s. */
const FIRST_WAIT_MS = 8_000;
/** How long when something is known, only not yet as seen by clients with these features. */
const FEATURES_WAIT_MS = 3_000;
/** Remote servers' lists are asked for again after this long, told of a change or not. A process started afresh says the same. */
const LIST_TTL_MS = 300_000;
/** A server that lets its lists be kept only so shortly is not asked more often. */
const LEAST_TTL_MS = 5_000;
/** A holder that looked this lately need not look again. */
const LOOKED_MS = 30_000;

interface Look {
  readonly atMs: number;
  /** Undefined when it is over. */
  looking: Promise<void> | undefined;
}

/** Sees to it that the lists a client gets are there and are right, without letting one upstream keep it waiting. */
export class ListRefresher {
  readonly #views: ReadonlyMap<string, View>;
  readonly #upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>;
  readonly #offers: Offers;
  /** When each holder looked last; whoever asks meanwhile waits for the same. */
  readonly #recent = new WeakMap<ConnectionHolder, Look>();
  /** Upstreams that somebody waited for in vain, and since when (monotonic ms). */
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

  /** Before the first words to a client: instructions and capabilities come from the lists. */
  async awaitFirstLists(view: string): Promise<void> {
    const unknown = new Map<string, Promise<boolean>>();
    for (const upstream of this.#of(view)) {
      const isKnown = this.#offers.get(upstream.id, '') !== undefined;
      const refreshing = this.#refreshIfStale(upstream, undefined);
      if (!isKnown && refreshing !== undefined) unknown.set(upstream.id, refreshing);
    }
    await this.#await(unknown, FIRST_WAIT_MS);
  }

  /** Before a list is answered. Undefined where there is nothing to wait for. */
  refreshFor(holder: ConnectionHolder): Promise<void> | undefined {
    const now = performance.now();
    const before = this.#recent.get(holder);
    if (before !== undefined && now - before.atMs <= LOOKED_MS) return before.looking;
    const looking = this.#refreshFor(holder);
    const look: Look = { atMs: now, looking };
    this.#recent.set(holder, look);
    return looking.then(() => (look.looking = undefined));
  }

  async #refreshFor(holder: ConnectionHolder): Promise<void> {
    const unknown = new Map<string, Promise<boolean>>();
    for (const upstream of this.#of(holder.caller.view)) {
      const capabilityKey = upstream.isPersonal ? holder.capabilityKey : '';
      const isKnown = await this.#offers.load(upstream.id, capabilityKey);
      const refreshing = this.#refreshIfStale(upstream, capabilityKey === '' ? undefined : holder);
      if (!isKnown && refreshing !== undefined) unknown.set(upstream.id, refreshing);
    }
    await this.#await(unknown, FEATURES_WAIT_MS);
  }

  /** One upstream that is down must not keep each new client waiting as long as the first: they are told once it is back. */
  async #await(unknown: Map<string, Promise<boolean>>, limitMs: number): Promise<void> {
    for (const [id, refreshing] of unknown) {
      if (this.#isSilent(id)) unknown.delete(id);
      else void refreshing.then((isHad) => isHad && unknown.delete(id));
    }
    if (unknown.size === 0) return;
    await atMost([...unknown.values()], limitMs);
    for (const id of unknown.keys()) this.#silentSinceMs.set(id, performance.now());
  }

  #isSilent(id: string): boolean {
    const sinceMs = this.#silentSinceMs.get(id);
    if (sinceMs === undefined) return false;
    const ageMs = this.#offers.ageMs(id, '');
    return ageMs === undefined || performance.now() - ageMs < sinceMs;
  }

  *#of(view: string): Iterable<Upstream<Exchange, ConnectionHolder>> {
    for (const { id } of this.#views.get(view)?.upstreams ?? []) {
      const upstream = this.#upstreams.get(id);
      if (upstream !== undefined && upstream.config.problem === undefined) yield upstream;
    }
  }

  /** A modern upstream may say for how long its lists hold, which is no longer than we would believe of any. */
  #ttlMs({ id, config }: Upstream<Exchange, ConnectionHolder>, capabilityKey: string): number {
    const said = this.#offers.get(id, capabilityKey)?.caching?.ttlMs ?? 0;
    if (said > 0) return Math.min(Math.max(said, LEAST_TTL_MS), LIST_TTL_MS);
    return config.target.kind === 'stdio' ? Number.POSITIVE_INFINITY : LIST_TTL_MS;
  }

  #refreshIfStale(
    upstream: Upstream<Exchange, ConnectionHolder>,
    features: ClientFeatures | undefined,
  ): Promise<boolean> | undefined {
    const ageMs = this.#offers.ageMs(upstream.id, features?.capabilityKey ?? '');
    const ttlMs = this.#ttlMs(upstream, features?.capabilityKey ?? '');
    if (ageMs !== undefined && ageMs < ttlMs) return undefined;
    // The upstream's state tells why it failed; whoever waits gets what is known instead.
    return upstream.refresh(features).then(
      () => true,
      () => false,
    );
  }
}

import { ArraySet } from '../small-collections.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { RawObject } from '../json/json.ts';
import { quirksOf } from '../protocol/revisions.ts';
import type { Link } from '../upstream/link.ts';
import type { Caller } from './caller.ts';
import type { Addressee, Exchange } from './exchange.ts';
import { mirrored, profileOf } from './features.ts';
import { Party } from './party.ts';

/** Somebody who hears of what belongs to no request: a `subscriptions/listen` stream. */
export interface Listener {
  announce(method: string, params: RawObject | undefined): void;
  /** An upstream says that a task of somebody's has changed. */
  taskChanged(link: Link<Exchange, Party>, task: string): void;
  close(): void;
}

/**
 * Modern clients are unknown from one request to the next. What servers of the legacy era keep for a client is kept for an
 * affinity: all requests of one principal to one endpoint that declare the same capabilities.
 */
export class Affinity extends Party {
  readonly working = new ArraySet<Exchange>();
  /** Requests that wait for an answer of ours, leases included and parked calls not. */
  underWay = 0;
  readonly listeners = new Set<Listener>();
  /** More of its kind, by upstream, each for one request at a time: see {@link at}. */
  readonly #leases = new Map<string, Affinity[]>();
  #lastLease = 0;

  get isListening(): boolean {
    return this.listeners.size > 0;
  }

  get isQuiet(): boolean {
    return this.working.size === 0 && !this.isListening && [...this.leases()].every(({ isQuiet }) => isQuiet);
  }

  /**
   * Whose connection a request to this upstream goes by.
   *
   * @param isExclusive whether a question from the upstream could not be told from one about another request, so that each
   *   request needs a connection to itself.
   */
  at(upstream: string, isExclusive: boolean, make: (key: string) => Affinity): Affinity {
    if (!isExclusive || this.#isFreeAt(upstream)) return this;
    const leases = this.#leases.get(upstream) ?? [];
    this.#leases.set(upstream, leases);
    const free = leases.find((lease) => lease.#isFreeAt(upstream));
    if (free !== undefined) return free;
    const lease = make(`${this.key} ${++this.#lastLease}`);
    leases.push(lease);
    return lease;
  }

  /** The lease of this key; itself, where there is none. */
  named(key: string): Affinity {
    for (const lease of this.leases()) if (lease.key === key) return lease;
    return this;
  }

  #isFreeAt(upstream: string): boolean {
    for (const exchange of this.working) if (exchange.upstream === upstream) return false;
    return true;
  }

  *leases(): Iterable<Affinity> {
    for (const leases of this.#leases.values()) yield* leases;
  }

  /** Lets go of leases nobody uses. */
  dropIdleLeases(drop: (lease: Affinity) => void): void {
    for (const [upstream, leases] of this.#leases) {
      // One whose connection is gone costs nothing but its name.
      const kept = leases.filter((lease) => lease.working.size > 0 || lease.linked.size > 0);
      for (const lease of leases) if (!kept.includes(lease)) drop(lease);
      if (kept.length === 0) this.#leases.delete(upstream);
      else this.#leases.set(upstream, kept);
    }
  }

  announce(method: string, params: RawObject | undefined): void {
    for (const listener of this.listeners) listener.announce(method, params);
  }

  latestExchangeAt(upstream: string): Exchange | undefined {
    let latest: Exchange | undefined;
    for (const exchange of this.working) if (exchange.upstream === upstream) latest = exchange;
    return latest;
  }

  addresseeAt(upstream: string): Addressee | undefined {
    const there = [...this.working].filter((exchange) => exchange.upstream === upstream);
    const [exchange] = there;
    if (exchange === undefined || there.length > 1) return undefined;
    return { client: exchange.client, exchange, isOnly: true };
  }

  override close(): void {
    super.close();
    for (const listener of this.listeners) listener.close();
    for (const exchange of this.working) exchange.cancel('the gateway let it go');
    for (const lease of this.leases()) lease.close();
  }
}

export interface AffinitiesParts {
  /** What clients that can do this see at this endpoint, looked for on disk too. */
  catalogFor(party: Party): Promise<Catalog>;
  /** Told before one is let go. */
  leaving(affinity: Affinity): void;
  readonly idleMs: number;
  readonly perPrincipal: number;
  /** What is known before anything is: the endpoint's lists for clients without features. */
  plain(view: string): Catalog;
}

/** The affinities in use. */
export class Affinities {
  readonly #parts: AffinitiesParts;
  readonly #all = new Map<string, Promise<Affinity>>();
  readonly #ready = new Map<string, Affinity>();
  /** By who asks: the same caller is mostly the same object. */
  #claims = new WeakMap<Caller, Affinity>();
  /** Names of sets of capabilities: what many declare is the same object, too. */
  readonly #profiles = new WeakMap<RawObject, string>();

  constructor(parts: AffinitiesParts) {
    this.#parts = parts;
  }

  *[Symbol.iterator](): Iterator<Affinity> {
    for (const affinity of this.#ready.values()) {
      yield affinity;
      yield* affinity.leases();
    }
  }

  /** At once where it is known. @throws {GatewayError} `invalid-params` for capabilities nobody could carry. */
  of(caller: Caller, nowMs: number): Affinity | Promise<Affinity> {
    const claimed = this.#claims.get(caller);
    if (claimed !== undefined) {
      claimed.usedMs = nowMs;
      return claimed;
    }
    const profile = this.#profileOf(caller);
    const key = `modern ${profile} ${caller.view} ${caller.principal.key}`;
    const known = this.#ready.get(key);
    if (known !== undefined) {
      known.usedMs = nowMs;
      this.#claims.set(caller, known);
      return known;
    }
    let making = this.#all.get(key);
    if (making === undefined) {
      making = this.#make(key, caller);
      this.#all.set(key, making);
    }
    return making;
  }

  #profileOf({ capabilities, revision }: Caller): string {
    let profile = this.#profiles.get(capabilities);
    if (profile === undefined) {
      profile = profileOf(mirrored(capabilities, quirksOf(revision)));
      this.#profiles.set(capabilities, profile);
    }
    return profile;
  }

  async #make(key: string, caller: Caller): Promise<Affinity> {
    this.#makeRoom(caller.principal.key);
    const affinity = new Affinity(key, caller, this.#parts.plain(caller.view));
    try {
      affinity.catalog = await this.#parts.catalogFor(affinity);
      this.#ready.set(key, affinity);
      return affinity;
    } finally {
      this.#all.delete(key);
    }
  }

  /** Clients choose their capabilities, so there is an end to how many different ones are kept apart. */
  #makeRoom(principal: string): void {
    const own = [...this.#ready.values()].filter((affinity) => affinity.principal === principal);
    if (own.length < this.#parts.perPrincipal) return;
    const quiet = own.filter(({ isQuiet }) => isQuiet).toSorted((a, b) => a.usedMs - b.usedMs);
    const [oldest] = quiet;
    if (oldest !== undefined) this.#letGo(oldest);
  }

  sweep(nowMs: number): void {
    for (const affinity of this.#ready.values()) {
      affinity.dropIdleLeases((lease) => this.#parts.leaving(lease));
      if (affinity.isQuiet && nowMs - affinity.usedMs > this.#parts.idleMs) this.#letGo(affinity);
    }
  }

  letAllGo(): void {
    for (const affinity of this.#ready.values()) this.#letGo(affinity);
  }

  #letGo(affinity: Affinity): void {
    this.#ready.delete(affinity.key);
    this.#claims = new WeakMap();
    for (const lease of affinity.leases()) this.#parts.leaving(lease);
    this.#parts.leaving(affinity);
    affinity.close();
  }
}

import type { Catalog } from '../catalog/catalog.ts';
import type { Offer } from '../catalog/offer.ts';
import type { RawObject } from '../json/json.ts';
import { quirksOf } from '../protocol/revisions.ts';
import type { Link, LinkUser } from '../upstream/link.ts';
import type { Caller } from './caller.ts';
import type { Addressee, Exchange } from './exchange.ts';
import { mirrored, profileOf } from './features.ts';
import type { Severity } from '../protocol/severity.ts';

/** A subscribed resource: who owns it, and its URI there. */
export interface Subscription {
  readonly upstream: string;
  readonly uri: string;
}

/**
 * Whoever connections to upstreams are kept for, and what those connections have been asked for on its behalf: a client's
 * session in the legacy era, an affinity of modern clients.
 */
export abstract class Party implements LinkUser {
  readonly key: string;
  readonly caller: Caller;
  readonly offered: RawObject;
  readonly profile: string;
  /** Connections that serve it, by upstream. */
  readonly links = new Map<string, Promise<Link<Exchange, Party>>>();
  /** Those of them that are ready for use. */
  readonly linked = new Map<string, Link<Exchange, Party>>();
  /** Lists as its own connection sees them, where they differ from everybody's. */
  readonly offers = new Map<string, Offer>();
  /** By the URI the client knows. */
  readonly subscriptions = new Map<string, Subscription>();
  /** The lowest it wants to hear of. */
  logLevel: Severity | undefined;
  catalog: Catalog;
  /** Monotonic ms. */
  usedMs = performance.now();
  readonly #closed = new AbortController();

  constructor(key: string, caller: Caller, catalog: Catalog) {
    this.key = key;
    this.caller = caller;
    this.catalog = catalog;
    this.offered = mirrored(caller.capabilities, quirksOf(caller.revision));
    this.profile = profileOf(this.offered);
  }

  get principal(): string {
    return this.caller.principal.key;
  }

  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Whether it is told when its lists change. */
  abstract readonly isListening: boolean;

  /** Tells what belongs to no request. */
  abstract announce(method: string, params: RawObject | undefined): void;

  /** The request an upstream is most likely talking about when it does not say: the latest one it works on. */
  abstract latestExchangeAt(upstream: string): Exchange | undefined;

  /** Of whom an upstream asks something when it does not say: undefined when it cannot be told. */
  abstract addresseeAt(upstream: string): Addressee | undefined;

  close(): void {
    this.#closed.abort();
  }
}

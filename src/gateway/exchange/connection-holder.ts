import type { Catalog } from '../../catalog/catalog.ts';
import type { Offer } from '../../catalog/offer.ts';
import type { RawObject } from '../../json/json.ts';
import { type Era, eraOf, featuresOf } from '../../protocol/revisions.ts';
import type { Link, LinkUser } from '../../upstream/link.ts';
import type { UpstreamSet } from '../../upstream/upstream-set.ts';
import type { Caller } from './caller.ts';
import type { Recipient, Exchange } from './exchange.ts';
import { forwardableCapabilities, capabilityKeyOf } from './client-capabilities.ts';
import type { Severity } from '../../protocol/severity.ts';

/** A connection to an upstream, with the holders it serves. */
export type HolderLink = Link<Exchange, ConnectionHolder>;

/** The upstreams of the gateway. */
export type Upstreams = UpstreamSet<Exchange, ConnectionHolder>;

/** A subscribed resource: who owns it, and its URI there. */
export interface Subscription {
  readonly upstream: string;
  readonly uri: string;
}

/** The loss of the state that an upstream kept for a client. */
export interface StateLoss {
  readonly upstream: string;
  readonly reason: 'idle' | 'crash' | 'forgotten' | 'restored';
  /** When it was noticed; ISO 8601. */
  readonly at: string;
}

/**
 * A holder of connections to upstreams, with the subscriptions and the log level that they were asked for on its behalf: a
 * client's session in the legacy era, a client group of modern clients.
 */
export abstract class ConnectionHolder implements LinkUser {
  readonly key: string;
  readonly caller: Caller;
  readonly clientCapabilities: RawObject;
  readonly capabilityKey: string;
  /** Connections that serve it, by upstream. */
  readonly pendingLinks = new Map<string, Promise<HolderLink>>();
  /** Those of them that are ready for use. */
  readonly links = new Map<string, HolderLink>();
  /** Lists of its own connections, where they differ from the lists of all. By upstream. */
  readonly ownOffers = new Map<string, Offer>();
  /** By the URI the client knows. */
  readonly subscriptions = new Map<string, Subscription>();
  /** Upstreams that have kept state for it. Undefined until the first one. */
  usedUpstreams: Set<string> | undefined;
  /** Losses of state that no answer has reported yet, by upstream. Undefined until the first one. */
  stateLosses: Map<string, StateLoss> | undefined;
  /** The lowest level of log messages that it wants. */
  logLevel: Severity | undefined;
  catalog: Catalog;
  /** The version of all offers that the catalog was made of. */
  catalogVersion = 0;
  /** Lists that its clients have asked for and that wait for upstreams. */
  awaitedLists = 0;
  /** Monotonic ms. */
  usedMs = performance.now();
  readonly #closed = new AbortController();

  constructor(key: string, caller: Caller, catalog: Catalog) {
    this.key = key;
    this.caller = caller;
    this.catalog = catalog;
    this.clientCapabilities = forwardableCapabilities(caller.capabilities, featuresOf(caller.revision));
    this.capabilityKey = capabilityKeyOf(this.clientCapabilities);
  }

  get principal(): string {
    return this.caller.principal.key;
  }

  get view(): string {
    return this.caller.view;
  }

  /** The era of its client. Upstreams that have both are spoken to in this one. */
  get era(): Era {
    return eraOf(this.caller.revision);
  }

  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Whether it is told when its lists change. */
  abstract readonly wantsListChanges: boolean;

  /** Whether one client stands behind it, which has seen every list that was answered. */
  abstract readonly isOneClient: boolean;

  /** Sends a notification that belongs to no request. */
  abstract announce(method: string, params: RawObject | undefined): void;

  /** Sends a log message of the gateway itself, where the client takes log messages that belong to no request. */
  abstract sendLog(level: Severity, params: RawObject): void;

  /** The request an upstream is most likely talking about when it does not say: the latest one it works on. */
  abstract latestExchangeAt(upstream: string): Exchange | undefined;

  /** An upstream keeps state for this holder from now on. */
  abstract onStateKept(upstream: string): void;

  /** Of whom an upstream asks something when it does not say: undefined when it cannot be told. */
  abstract recipientAt(upstream: string): Recipient | undefined;

  close(): void {
    this.#closed.abort();
  }
}

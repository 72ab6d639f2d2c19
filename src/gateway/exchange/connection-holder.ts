import { hash } from 'node:crypto';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Offer } from '../../catalog/offer.ts';
import type { RawObject } from '../../json/json.ts';
import { KeptMap, type KeptText } from '../../json/kept-text.ts';
import { type Era, featuresOf } from '../../protocol/revisions.ts';
import type { Attachment } from '../../upstream/link/attachment.ts';
import type { Link as LinkOf, LinkUser } from '../../upstream/link/link.ts';
import type { Upstream as UpstreamOf } from '../../upstream/upstream.ts';
import type { UpstreamSet } from '../../upstream/upstream-set.ts';
import { clientDialect, type ClientDialect } from '../dialects/client-dialect.ts';
import type { Caller } from '../front/caller.ts';
import type { Recipient, Exchange } from './exchange.ts';
import { forwardableCapabilities, capabilityKeyOf } from './client-capabilities.ts';
import type { Severity } from '../../protocol/severity.ts';

export type Link = LinkOf<Exchange, ConnectionHolder>;

export type Upstream = UpstreamOf<Exchange, ConnectionHolder>;

export type Upstreams = UpstreamSet<Exchange, ConnectionHolder>;

/** A subscribed resource: its upstream, and its URI there. */
export interface Subscription {
  readonly upstream: string;
  readonly uri: KeptText;
}

/** The loss of the state that an upstream kept for a client. */
export interface StateLoss {
  readonly upstream: string;
  readonly reason: 'idle' | 'crash' | 'forgotten' | 'replaced' | 'restored';
  /** The time when the gateway noticed the loss; ISO 8601. */
  readonly at: string;
}

/** A session or a client group: the links that are kept for it, with its subscriptions and log level. */
export abstract class ConnectionHolder implements LinkUser {
  readonly key: string;
  readonly caller: Caller;
  readonly dialect: ClientDialect;
  readonly clientCapabilities: RawObject;
  readonly capabilityKey: string;
  /** Promises of the links that serve this holder, by upstream: of those that are being opened, and of the open ones. */
  readonly linkPromises = new Map<string, Promise<Link>>();
  /** The open links among them, by upstream. */
  readonly links = new Map<string, Link>();
  /** Offers of its own links that differ from the offer for all clients, by upstream. */
  readonly ownOffers = new Map<string, Offer>();
  /** By published URI. */
  readonly subscriptions = new KeptMap<Subscription>();
  /**
   * URIs of stored subscriptions of a session that its catalog does not lead to, with the upstream that they were at in this process. Their
   * upstream is away, or its token may not have them.
   */
  unresolved: Map<string, string | undefined> | undefined;
  /** Upstreams that may keep state for this holder. Undefined until the first one. */
  usedUpstreams: Set<string> | undefined;
  /** Upstreams that may have kept state for a restored session, until it has a link there. Undefined for none. */
  keptUpstreams: Set<string> | undefined;
  /** Records of kept states that are being stored, by upstream. Undefined while there are none. None rejects. */
  stateRecords: Map<string, Promise<void>> | undefined;
  /** Upstreams whose state could not be recorded. Undefined until the first one. */
  unrecordedStates: Set<string> | undefined;
  /** Losses of state that no answer has reported yet, by upstream. Undefined until the first one. */
  stateLosses: Map<string, StateLoss> | undefined;
  /** Sessions of upstreams that an earlier process had for this holder, until a link continues or replaces them. Undefined for none. */
  attachments: Map<string, Attachment> | undefined;
  /** Upstreams whose sessions another process can continue. Undefined until the first one. */
  attachable: Set<string> | undefined;
  /** True if another process may continue its sessions at upstreams. */
  isLeft = false;
  /** The lowest level of log messages that the client wants; undefined if it has set none. */
  logLevel: Severity | undefined;
  catalog: Catalog;
  /** The version of the offers that the catalog was made of; see `Offers.version`. */
  catalogVersion = 0;
  /** The number of list requests of its clients that wait for upstreams. */
  awaitedLists = 0;
  /** The time of the last use; monotonic ms. */
  usedMs = performance.now();
  readonly #closed = new AbortController();
  #digest: string | undefined;

  constructor(key: string, caller: Caller, catalog: Catalog) {
    this.key = key;
    this.caller = caller;
    this.dialect = clientDialect(caller.revision);
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

  /** The era of the client. An upstream of both eras is used in this one. */
  get era(): Era {
    return this.dialect.era;
  }

  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** The id by which clients name the holder; its key if they do not name it. */
  abstract readonly handle: string;

  /** The name of the holder for operators and logs. */
  get digest(): string {
    return (this.#digest ??= digestOf(this.handle));
  }

  /** True if the gateway announces changes of lists to this holder. */
  abstract readonly wantsListChanges: boolean;

  /** True if the holder is a single client: a list that was answered need not be announced, and it has no sibling groups. */
  abstract readonly isOneClient: boolean;

  /** Adds a request to those that messages of upstreams may be about. */
  abstract addExchange(exchange: Exchange): void;

  abstract removeExchange(exchange: Exchange): void;

  /** Returns the requests that messages of upstreams may be about, in the order of their arrival. */
  abstract exchanges(): Iterable<Exchange>;

  /** The number of open streams for messages that belong to no request. */
  abstract readonly streamCount: number;

  /** Sends a notification that belongs to no request of the client. */
  abstract announce(method: string, params: RawObject | undefined): void;

  /** Handles a change of any task of an upstream, which may belong to another client. */
  abstract onTaskChange(link: Link, task: string): void;

  /** Sends a log message of the gateway itself, if the client accepts log messages that belong to no request. */
  abstract sendLog(level: Severity, params: RawObject): void;

  /** Returns the request that a message which names none most likely refers to: the latest one at its upstream. */
  latestExchangeAt(upstream: string): Exchange | undefined {
    return [...this.exchanges()].findLast((exchange) => exchange.upstream === upstream);
  }

  /**
   * Runs when an upstream begins to keep state for this holder. Returns a promise that never rejects if the answer that begins the state must wait
   * until other processes can know of it.
   */
  abstract onStateKept(upstream: string): Promise<void> | undefined;

  /** Runs when the rights have changed by which is judged what runs without a request of this holder. */
  abstract onRightsChange(): void;

  /**
   * Runs when the gateway has removed a subscription of this holder. The access policy denies its resource, or its upstream keeps none any
   * more.
   */
  abstract onSubscriptionLost(uri: string, upstream: string): void;

  abstract onLinkOpen(link: Link): void;

  /** Returns the client that a server request without a related call is for; undefined if that is ambiguous. */
  abstract recipientAt(upstream: string): Recipient | undefined;

  /** Ends the holder. Its links are released by its owner. */
  close(): void {
    this.#closed.abort();
  }
}

const DIGEST_CHARS = 16;

/** Returns the name of a session or group for operators and logs. The id of a session is a credential and is never shown. */
export function digestOf(handle: string): string {
  return hash('sha256', handle, 'hex').slice(0, DIGEST_CHARS);
}

import type { Logger } from 'pino';
import type { Offer } from '../catalog/offer.ts';
import type { UpstreamConfig } from '../config/config.ts';
import { type GatewayError, toGatewayError } from '../errors.ts';
import type { RawObject } from '../json/json.ts';
import type { Era, Revision } from '../protocol/revisions.ts';
import { traceStart } from '../telemetry/tracing/mcp-spans.ts';
import type { Span } from '../telemetry/tracing/tracing.ts';
import { awaitAdmission } from './await-admission.ts';
import { drained } from './drain.ts';
import { retiredError, startFailure } from './start-failure.ts';
import { ConcurrencyLimiter } from './concurrency-limiter.ts';
import {
  connectionKey,
  type ConnectionScope,
  discoveryKey,
  isCallKey,
  isDiscoveryKey,
  isSharedKey,
} from './connection-key.ts';
import type { Eras } from './link/eras.ts';
import type { Lifecycle } from './lifecycle.ts';
import { Lifecycles } from './lifecycles.ts';
import { UpstreamQuotas } from './quotas.ts';
import { type ClientFeatures, type CloseReason, isIdle, type Link, type LinkUser, NO_FEATURES } from './link/link.ts';
import { listOffer } from './link/listing.ts';
import { type LinkRequest, Opener } from './link/opener.ts';
import { retryUntilDone } from './retry-until-done.ts';
import { detailOf, reasonOf } from './reason.ts';
import { settlesWithin } from './settles-within.ts';
import type { UpstreamEvents } from './upstream-events.ts';
import type { LinkOrder, UpstreamParts } from './upstream-parts.ts';
import { type CapabilityFilter, capabilityFilter } from './link/usable-capabilities.ts';

/** How long an unused discovery connection stays open after the first client was served: it may report changes. */
const DISCOVERY_IDLE_MS = 10_000;
/** How long a client waits for the end of a listing to get its process, before it gets a new process. */
const ADOPTION_WAIT_MS = 1_000;

/** One configured MCP server: its state in each era, its connections, and its lists. */
export class Upstream<Owner, User extends LinkUser> {
  readonly limiter: ConcurrencyLimiter;
  /** Returns the part of the client capabilities that is declared to this upstream. */
  readonly usableCapabilities: CapabilityFilter;
  readonly #parts: UpstreamParts;
  readonly #events: UpstreamEvents<Owner, User>;
  readonly #log: Logger;
  readonly #opener: Opener<Owner, User>;
  readonly #links = new Map<string, Promise<Link<Owner, User>>>();
  readonly #live = new Set<Link<Owner, User>>();
  readonly #stopping = new AbortController();
  readonly #closing = new Set<Promise<void>>();
  readonly #refreshing = new Map<string, Promise<void>>();
  readonly #slots = new WeakMap<Link<Owner, User>, () => void>();
  readonly #lifecycles = new Lifecycles((after) => this.#onLifecycle(after));
  readonly #retryingListing = new Set<Era>();
  /** The listing in progress, by link. */
  readonly #reading = new Map<Link<Owner, User>, Promise<Offer>>();
  /** The revision that was last negotiated in each era. */
  readonly #revisions: Partial<Record<Era, Revision>> = {};
  readonly #isProcess: boolean;
  readonly #quotas: UpstreamQuotas;
  #config: UpstreamConfig;
  readonly #retired = new AbortController();
  /** Links that a client is about to use, or that read lists. */
  readonly #claimed = new Set<Link<Owner, User>>();
  /** Whether a client has been served. Before that, the process that read the lists is kept for the first client. */
  #hasServed = false;
  #lastCall = 0;

  constructor(parts: UpstreamParts, events: UpstreamEvents<Owner, User>) {
    const { config } = parts;
    this.#config = config;
    this.limiter = new ConcurrencyLimiter(config.id, config.concurrency, config.queue, config.queueMs);
    this.usableCapabilities = capabilityFilter(config.clientFeatures);
    this.#parts = parts;
    this.#events = events;
    this.#log = parts.log.child({ upstream: config.id });
    const { transports, clientInfo } = parts;
    const timeouts = () => this.#config.timeouts;
    this.#opener = new Opener({ upstream: config.id, transports, clientInfo, timeouts, log: this.#log });
    this.#isProcess = transports.some(({ isProcess }) => isProcess);
    this.#quotas = new UpstreamQuotas(config.id, config.maxConnections, parts.quota, () => this.#findSpare());
    if (config.problem !== undefined) {
      const reason = config.problem;
      this.#lifecycles.stepAll({ kind: 'start-failed', reason, detail: undefined, permanent: true, startedMs: 0 });
    }
  }

  get config(): UpstreamConfig {
    return this.#config;
  }

  get id(): string {
    return this.#config.id;
  }

  /**
   * Applies settings that open connections do not depend on. The others must be equal (`diffConfigs` in `config/diff.ts` decides);
   * a change of those needs another upstream.
   */
  update(config: UpstreamConfig): void {
    this.#config = config;
    this.limiter.setLimits(config.concurrency, config.queue, config.queueMs);
    this.#quotas.setLimit(config.maxConnections);
  }

  /** Whether the upstream has been removed or replaced. It finishes its requests, and reports no more states and lists. */
  get isRetired(): boolean {
    return this.#retired.signal.aborted;
  }

  /** Marks the upstream as removed or replaced. */
  retire(): void {
    this.#retired.abort();
    for (const link of this.#live) link.isRetired = true;
  }

  /** Its combined state in the eras in use. */
  get lifecycle(): Lifecycle {
    return this.#lifecycles.overall;
  }

  /** The verdicts on its eras. */
  get eras(): Eras {
    return this.#opener.eras;
  }

  /** Returns the serving era for clients of this era; undefined before a probe has decided it. */
  servingEra(client: Era): Era | undefined {
    return this.#opener.servingEra(client);
  }

  /** Returns the revision last negotiated in this era; undefined before the first link. */
  revisionIn(era: Era): Revision | undefined {
    return this.#revisions[era];
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#live.size;
  }

  /** Returns the open links. */
  links(): Iterable<Link<Owner, User>> {
    return this.#live;
  }

  /** Whether lists depend on the capabilities of clients, because connections declare those of single clients. */
  get isPersonal(): boolean {
    return this.config.isolation !== 'shared';
  }

  /** Whether each connection is a process. */
  get isProcess(): boolean {
    return this.#isProcess;
  }

  /**
   * Returns whether clients of this era that can answer questions need a connection for each call, because a server request
   * does not show to which call it belongs. Also true before the first link has shown it.
   */
  needsOwnConnection(client: Era): boolean {
    const { isolation } = this.config;
    const isPrivate = isolation === 'session' || isolation === 'call';
    return isPrivate && this.servingEra(client) !== 'modern' && this.#opener.hasCallStreams !== true;
  }

  /**
   * Returns the link that serves this user. Opens it if necessary.
   *
   * @param span the span that a start of the upstream is a part of; undefined if there is none.
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`
   */
  async link(user: User, span?: Span): Promise<Link<Owner, User>> {
    const { isolation } = this.config;
    const call = isolation === 'call' ? ++this.#lastCall : 0;
    // A connection for all clients declares no client capabilities.
    const features = isolation === 'shared' ? NO_FEATURES : user;
    const keyIn = (era: Era) => connectionKey(this.#scope(era), user, call);
    const order = { keyIn, features, client: user.era, principal: user.principal, span };
    this.#adoptDiscovery(order);
    const link = await this.#getLink(order);
    link.users.add(user);
    this.#claimed.delete(link);
    this.#hasServed = true;
    return link;
  }

  /**
   * Gives the discovery connection of these features to this client, so that no second process is started. That process has
   * served no client, and got the same capabilities.
   */
  #adoptDiscovery(order: LinkOrder): void {
    const { keyIn, features, client } = order;
    // A server asks for roots right after its start, when no client can answer yet.
    if (this.usableCapabilities(features.clientCapabilities).raw('roots') !== undefined) return;
    const era = this.#likelyEra(client);
    const key = keyIn(era);
    if (!this.#isProcess || isSharedKey(key) || this.#links.has(key)) return;
    const from = discoveryKey(this.#scope(era), features.capabilityKey);
    const opening = this.#links.get(from);
    if (opening === undefined) return;
    this.#links.delete(from);
    const adopted = opening.then(async (link) => {
      // A call of this client could change the lists while they are read, and they are for other clients too.
      const reading = this.#reading.get(link);
      const isFree = reading === undefined || (await settlesWithin(reading, ADOPTION_WAIT_MS));
      if (isFree && link.key === from && this.#live.has(link)) {
        link.key = key;
        link.shared = false;
        this.#claimed.add(link);
        return link;
      }
      // The link has another era than expected, or has closed.
      if (this.#links.get(key) === adopted) this.#links.delete(key);
      return this.#getLink(order);
    });
    this.#setLink(key, adopted);
  }

  #scope(era: Era): ConnectionScope {
    return { isolation: this.config.isolation, era, isProcess: this.#isProcess };
  }

  /** Marks the end of a call on this link. Closes a link that serves one call only. */
  onCallEnd(link: Link<Owner, User>): void {
    link.usedMs = performance.now();
    if (isCallKey(link.key)) void this.#discard(link, 'released');
  }

  /** Releases the links of this user. Closes those that serve no other user. */
  releaseUser(user: User): void {
    for (const link of this.#live) {
      if (!link.users.delete(user)) continue;
      if (link.users.size === 0 && !link.shared && this.config.isolation !== 'principal')
        void this.#discard(link, 'released');
    }
  }

  /** Closes links that were not used for the configured time. @param nowMs monotonic. */
  closeIdleLinks(nowMs: number): void {
    const { idleMs } = this.config;
    for (const link of this.#live) {
      // Before the first client is served, the process that read the lists is kept for it.
      const isSpare = isDiscoveryKey(link.key) && this.#hasServed;
      const limitMs = isSpare ? Math.min(DISCOVERY_IDLE_MS, idleMs) : idleMs;
      if (isIdle(link) && nowMs - link.usedMs > limitMs && !this.#staysOpen(link)) void this.#discard(link, 'idle');
    }
  }

  /** Returns whether a link stays open without users: a connection to a remote server, for its notifications; a shared process. */
  #staysOpen(link: Link<Owner, User>): boolean {
    const isStanding = this.config.target.kind !== 'stdio' || this.config.isolation === 'shared';
    return link.shared && link.capabilityKey === '' && isStanding;
  }

  /**
   * Reads the lists for clients of this era with these features. Simultaneous calls share one listing.
   *
   * @throws {GatewayError} if the lists cannot be read, which the state of the upstream shows too.
   */
  refresh(client: Era, features: ClientFeatures = NO_FEATURES): Promise<void> {
    if (this.isRetired) return Promise.reject(retiredError(this.id));
    const round = this.#roundKey(client, features);
    const running = this.#refreshing.get(round);
    if (running !== undefined) return running;
    const refreshing = this.#refresh(client, features).finally(() => this.#refreshing.delete(round));
    this.#refreshing.set(round, refreshing);
    return refreshing;
  }

  /** Reads lists that have changed, after a running listing that may have begun before the change. @throws {GatewayError} */
  async relist(client: Era, features: ClientFeatures): Promise<void> {
    await this.#refreshing.get(this.#roundKey(client, features))?.catch(() => undefined);
    await this.refresh(client, features);
  }

  #roundKey(client: Era, { capabilityKey }: ClientFeatures): string {
    return `${this.#likelyEra(client)} ${capabilityKey}`;
  }

  /** Returns the expected era of a new link for clients of this era. */
  #likelyEra(client: Era): Era {
    return this.servingEra(client) ?? client;
  }

  /** Reads the lists. Never over the connection of a single client, whose lists may be private. */
  async #refresh(client: Era, features: ClientFeatures): Promise<void> {
    const { capabilityKey } = features;
    let link: Link<Owner, User> | undefined;
    try {
      const keyIn = (era: Era) => discoveryKey(this.#scope(era), capabilityKey);
      link = await this.#getLink({ keyIn, features, client, principal: '', span: undefined });
      const reading = this.list(link, features.clientCapabilities);
      this.#reading.set(link, reading);
      const offer = await reading;
      if (!this.isRetired) this.#events.onLists(this.id, link.era, capabilityKey, offer);
      this.#lifecycles.step(link.era, { kind: 'listed' });
      // Clients with these features get notifications of changes on their own connections.
      const isSpare = this.#hasServed || !this.#isProcess;
      if (isSpare && link.capabilityKey !== '' && isDiscoveryKey(link.key)) void this.#discard(link, 'released');
    } catch (thrown) {
      const error = toGatewayError(thrown);
      const era = this.#likelyEra(client);
      if (this.#lifecycles.in(era).phase === 'ready')
        this.#lifecycles.step(era, { kind: 'list-failed', reason: reasonOf(error) });
      if (capabilityKey === '' || this.#isProcess) this.#retryListing(client, features);
      throw error;
    } finally {
      if (link !== undefined) this.#reading.delete(link);
      if (link?.shared === true) this.#claimed.delete(link);
      this.#quotas.closeSpares();
    }
  }

  /**
   * Reads the lists over this link; in the modern era, for clients with these capabilities.
   *
   * @throws {GatewayError} if one of the lists cannot be read.
   */
  list(link: Link<Owner, User>, capabilities: RawObject): Promise<Offer> {
    link.usedMs = performance.now();
    const { onLimit, onListed } = this.#parts;
    const usable = this.usableCapabilities(capabilities);
    const timeoutMs = this.config.timeouts.callMs;
    return listOffer(link, { upstream: this.id, capabilities: usable, timeoutMs, onLimit, onListed });
  }

  /**
   * Waits until no request is in flight or in the queue, no call is parked and no task is running, at most this long (ms). Resolves
   * with the number of connections that are still in use.
   */
  drain(limitMs: number): Promise<number> {
    return drained(this.limiter, this.#live, limitMs);
  }

  /** Closes every connection. No link can be opened afterwards. Resolves when all are closed, in bounded time. */
  async stop(): Promise<void> {
    this.#lifecycles.stepAll({ kind: 'stopped' });
    this.#stopping.abort();
    for (const link of this.#live) void this.#discard(link, 'released');
    await Promise.allSettled(this.#links.values());
    for (const link of this.#live) void this.#discard(link, 'released');
    await Promise.allSettled(this.#closing);
    this.#quotas.leave();
  }

  #onLifecycle(after: Lifecycle): void {
    const { phase, reason, detail } = after;
    const level = phase === 'failed' || phase === 'degraded' ? 'warn' : 'info';
    this.#log[level]({ phase, reason, detail }, 'upstream state');
    if (!this.isRetired) this.#events.onStateChange(this.id, after);
  }

  #getLink(order: LinkOrder): Promise<Link<Owner, User>> {
    const key = order.keyIn(this.#likelyEra(order.client));
    const known = this.#links.get(key);
    if (known !== undefined) return known;
    const opening = this.#open(order).then((link) => this.#placeLink(key, link));
    this.#setLink(key, opening);
    return opening;
  }

  #setLink(key: string, opening: Promise<Link<Owner, User>>): void {
    this.#links.set(key, opening);
    opening.catch(() => {
      if (this.#links.get(key) === opening) this.#links.delete(key);
    });
  }

  /** Stores a link under its key, which depends on its era. If there is already a link with that key, returns that one. */
  #placeLink(key: string, link: Link<Owner, User>): Link<Owner, User> | Promise<Link<Owner, User>> {
    if (link.key === key) return link;
    this.#links.delete(key);
    const other = this.#links.get(link.key);
    if (other === undefined) {
      this.#links.set(link.key, Promise.resolve(link));
      return link;
    }
    this.#live.delete(link);
    void this.#close(link);
    return other;
  }

  async #open({ keyIn, features, client, principal, span }: LinkOrder): Promise<Link<Owner, User>> {
    await awaitAdmission(this.id, () => this.#lifecycles.in(this.#likelyEra(client)), this.#stopping.signal);
    const request = { principal, waitMs: this.config.queueMs, signal: this.#stopping.signal };
    const release = await this.#quotas.acquire(request);
    try {
      const { capabilityKey } = features;
      const clientCapabilities = this.usableCapabilities(features.clientCapabilities);
      const placeIn = (era: Era) => ({ key: keyIn(era), shared: isSharedKey(keyIn(era)) });
      const starting = this.#start({ clientEra: client, clientCapabilities, capabilityKey, placeIn });
      const link = await traceStart(this.#parts.tracing, span, this.id, starting);
      if (this.#live.has(link)) this.#slots.set(link, release);
      else release();
      return link;
    } catch (thrown) {
      release();
      throw thrown;
    }
  }

  async #start(order: LinkRequest): Promise<Link<Owner, User>> {
    const startedMs = performance.now();
    const expected = this.#likelyEra(order.clientEra);
    const erasBefore = this.eras;
    this.#lifecycles.step(expected, { kind: 'starting' });
    try {
      const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(this.config.timeouts.startMs)]);
      const link = await this.#opener.open(
        order,
        {
          onOpen: (link) => {
            link.isRetired = this.isRetired;
            this.#live.add(link);
            this.#claimed.add(link);
          },
          onNotification: (link, notification, about) => this.#events.onNotification(link, notification, about),
          onServerRequest: (link, request) => this.#events.onServerRequest(link, request),
          onClose: (link, error) => this.#onLost(link, error),
        },
        signal,
      );
      // The link has another era than expected, so the expected era is not in use.
      if (link.era !== expected) this.#lifecycles.reset(expected);
      this.#revisions[link.era] = link.hello.revision;
      this.#lifecycles.step(link.era, { kind: 'connected' });
      if (this.eras !== erasBefore && !this.isRetired) this.#events.onEras(this.id, this.eras);
      return link;
    } catch (thrown) {
      const { reason, detail, cause, error } = startFailure(this.config, thrown);
      this.#log.warn({ err: cause }, 'upstream did not start');
      this.#parts.onStartFailed();
      const isRemote = !this.#isProcess;
      this.#lifecycles.step(expected, { kind: 'start-failed', reason, detail, permanent: false, isRemote, startedMs });
      throw error;
    }
  }

  /** Returns a function that closes a connection without a client; undefined if there is none. */
  #findSpare(): (() => Promise<void>) | undefined {
    for (const link of this.#live) {
      const isSpare = link.users.size === 0 && isIdle(link) && !this.#staysOpen(link) && !this.#claimed.has(link);
      if (isSpare) return () => this.#discard(link, 'released');
    }
    return undefined;
  }

  #remove(link: Link<Owner, User>): boolean {
    if (!this.#live.delete(link)) return false;
    this.#links.delete(link.key);
    return true;
  }

  #discard(link: Link<Owner, User>, reason: CloseReason): Promise<void> {
    if (!this.#remove(link)) return Promise.resolve();
    this.#events.onLinkClosed(link, reason);
    return this.#close(link);
  }

  #onLost(link: Link<Owner, User>, error: GatewayError): void {
    if (!this.#remove(link)) return;
    // The loss of a session is not a crash.
    const isForgotten = error.code === 'upstream-session-lost';
    const early = !link.hasAnsweredCall && !isForgotten;
    this.#lifecycles.step(link.era, { kind: 'lost', reason: reasonOf(error), detail: detailOf(error), early });
    this.#log.warn({ err: error }, 'upstream connection lost');
    // The transport may still have a process that is ending.
    void this.#close(link);
    this.#events.onLinkClosed(link, isForgotten ? 'forgotten' : 'crash');
    if (this.#staysOpen(link)) this.#retryListing(link.era);
  }

  #close(link: Link<Owner, User>): Promise<void> {
    this.#claimed.delete(link);
    const closing = link.connection.close().finally(() => {
      this.#slots.get(link)?.();
      this.#closing.delete(closing);
    });
    this.#closing.add(closing);
    return closing;
  }

  /** Repeats the listing until it succeeds, without a request of a client. */
  #retryListing(client: Era, features: ClientFeatures = NO_FEATURES): void {
    if (this.#retryingListing.has(client) || this.config.problem !== undefined || this.isRetired) return;
    this.#retryingListing.add(client);
    const signal = AbortSignal.any([this.#stopping.signal, this.#retired.signal]);
    const waitMs = () => this.#lifecycles.in(this.#likelyEra(client)).retryAtMs - performance.now();
    void retryUntilDone(() => this.refresh(client, features), waitMs, signal).finally(() =>
      this.#retryingListing.delete(client),
    );
  }
}

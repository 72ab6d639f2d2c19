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
  audienceOf,
  connectionKey,
  type ConnectionScope,
  discoveryKey,
  isCallKey,
  EVERYBODY,
  isDiscoveryKey,
  isSharedKey,
} from './connection-key.ts';
import type { Eras } from './link/eras.ts';
import type { Lifecycle } from './lifecycle.ts';
import { Lifecycles } from './lifecycles.ts';
import { UpstreamQuotas } from './quotas.ts';
import { type ClientFeatures, type CloseReason, isIdle, type Link, type LinkUser, NO_FEATURES } from './link/link.ts';
import { listOffer } from './link/listing.ts';
import { type LinkNeed, LinksByKey } from './links-by-key.ts';
import { isExpired, staysOpen } from './idle-links.ts';
import { type LinkRequest, Opener } from './link/opener.ts';
import { retryUntilDone } from './retry-until-done.ts';
import { detailOf, reasonOf } from './reason.ts';
import { settlesWithin } from './settles-within.ts';
import { SingleRuns } from './single-runs.ts';
import type { UpstreamEvents } from './upstream-events.ts';
import type { UpstreamParts } from './upstream-parts.ts';
import { type CapabilityFilter, capabilityFilter } from './link/usable-capabilities.ts';

/** The time that a client waits for the end of a listing to get its process, before it gets a new process. */
const ADOPTION_WAIT_MS = 1_000;

/** One configured MCP server: its state in each era, its connections, and its lists. */
export class Upstream<Context, User extends LinkUser> {
  readonly limiter: ConcurrencyLimiter;
  /** Returns the part of the client capabilities that is declared to this upstream. */
  readonly usableCapabilities: CapabilityFilter;
  readonly #parts: UpstreamParts;
  readonly #events: UpstreamEvents<Context, User>;
  readonly #log: Logger;
  readonly #opener: Opener<Context, User>;
  readonly #links = new LinksByKey<Context, User>();
  readonly #live = new Set<Link<Context, User>>();
  readonly #stopping = new AbortController();
  readonly #closing = new Set<Promise<void>>();
  readonly #listings = new SingleRuns();
  readonly #slots = new WeakMap<Link<Context, User>, () => void>();
  readonly #lifecycles = new Lifecycles((after) => this.#onLifecycle(after));
  readonly #retryingListing = new Set<Era>();
  /** The listing in progress, by link. */
  readonly #reading = new Map<Link<Context, User>, Promise<Offer>>();
  /** The revision that was last negotiated in each era. */
  readonly #revisions: Partial<Record<Era, Revision>> = {};
  readonly #isProcess: boolean;
  readonly #quotas: UpstreamQuotas;
  #config: UpstreamConfig;
  readonly #retired = new AbortController();
  /** Links that a client is about to use, or that read lists. */
  readonly #claimed = new Set<Link<Context, User>>();
  /** True if a client has been served. Before that, the process that read the lists is kept for the first client. */
  #hasServed = false;
  #lastCall = 0;

  constructor(parts: UpstreamParts, events: UpstreamEvents<Context, User>) {
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
      const failure = { scope: 'upstream', reason, detail: undefined, permanent: true, startedMs: 0 } as const;
      this.#lifecycles.stepAll({ kind: 'start-failed', ...failure });
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

  /** Returns whether the upstream has been removed or replaced. It finishes its requests, and reports no more states and lists. */
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
  links(): Iterable<Link<Context, User>> {
    return this.#live;
  }

  /** Returns the audience of the connections and lists for a principal: the principal, or everybody. */
  audienceOf(principal: string): string {
    return audienceOf(this.#parts.credentials, principal);
  }

  /** Returns whether lists depend on the capabilities of clients, because connections declare those of single clients. */
  get isPersonal(): boolean {
    return this.config.isolation !== 'shared';
  }

  /** Returns whether each connection is a process. */
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
  async link(user: User, span?: Span): Promise<Link<Context, User>> {
    const { isolation } = this.config;
    const call = isolation === 'call' ? ++this.#lastCall : 0;
    // A connection for all clients declares no client capabilities.
    const { clientCapabilities, capabilityKey } = isolation === 'shared' ? NO_FEATURES : user;
    const { era: clientEra, principal } = user;
    const keyIn = (era: Era) => connectionKey(this.#scope(era), user, call);
    const audience = this.audienceOf(principal);
    const need = { clientEra, clientCapabilities, capabilityKey, principal, audience, keyIn, span };
    this.#adoptDiscovery(need);
    const link = await this.#getLink(need);
    link.users.add(user);
    this.#claimed.delete(link);
    this.#hasServed = true;
    return link;
  }

  /**
   * Gives the discovery connection of these features to a client, so that no second process is started. That process has
   * served no client, and got the same capabilities.
   */
  #adoptDiscovery(need: LinkNeed): void {
    // A server asks for roots right after its start, when no client can answer yet.
    if (this.usableCapabilities(need.clientCapabilities).raw('roots') !== undefined) return;
    const era = this.#likelyEra(need.clientEra);
    const key = need.keyIn(era);
    if (!this.#isProcess || isSharedKey(key) || this.#links.get(key) !== undefined) return;
    const from = discoveryKey(this.#scope(era), need.capabilityKey, need.audience);
    const opening = this.#links.get(from);
    if (opening === undefined) return;
    this.#links.remove(from);
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
      this.#links.remove(key, adopted);
      return this.#getLink(need);
    });
    this.#links.set(key, adopted);
  }

  #scope(era: Era): ConnectionScope {
    const { credentials } = this.#parts;
    return { isolation: this.config.isolation, era, isProcess: this.#isProcess, credentials };
  }

  /** Marks the end of a call on this link. Closes a link that serves one call only. */
  onCallEnd(link: Link<Context, User>): void {
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
    for (const link of this.#live) {
      if (isExpired(link, this.config, this.#hasServed, nowMs)) void this.#discard(link, 'idle');
    }
  }

  /**
   * Reads the lists for clients of this era with these features. Simultaneous calls share one listing.
   *
   * @param audience from {@link audienceOf}.
   * @throws {GatewayError} if the lists cannot be read. The state of the upstream shows it, unless it concerns one principal.
   */
  refresh(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    if (this.isRetired) return Promise.reject(retiredError(this.id));
    const key = this.#listingKey(client, features, audience);
    return this.#listings.run(key, () => this.#refresh(client, features, audience));
  }

  /** Reads lists that have changed, after a running listing that may have begun before the change. @throws {GatewayError} */
  async relist(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    await this.#listings.settled(this.#listingKey(client, features, audience));
    await this.refresh(client, features, audience);
  }

  #listingKey(client: Era, { capabilityKey }: ClientFeatures, audience: string): string {
    return `${this.#likelyEra(client)} ${capabilityKey} ${audience}`;
  }

  /** Returns the expected era of a new link for clients of this era. */
  #likelyEra(client: Era): Era {
    return this.servingEra(client) ?? client;
  }

  /** Reads the lists. Never over the connection of a single client, whose lists may be private. */
  async #refresh(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    const { clientCapabilities, capabilityKey } = features;
    let link: Link<Context, User> | undefined;
    try {
      const keyIn = (era: Era) => discoveryKey(this.#scope(era), capabilityKey, audience);
      const need = { clientEra: client, clientCapabilities, capabilityKey, principal: audience, audience, keyIn };
      link = await this.#getLink(need);
      const reading = this.list(link, clientCapabilities);
      this.#reading.set(link, reading);
      const offer = await reading;
      if (!this.isRetired) this.#events.onLists(this.id, { era: link.era, capabilityKey, audience }, offer);
      this.#lifecycles.step(link.era, { kind: 'listed' });
      // Clients with these features get notifications of changes on their own connections.
      const isSpare = this.#hasServed || !this.#isProcess;
      if (isSpare && link.capabilityKey !== '' && isDiscoveryKey(link.key)) void this.#discard(link, 'released');
    } catch (thrown) {
      const error = toGatewayError(thrown);
      if (audience === EVERYBODY) this.#onListingFailed(client, features, error);
      throw error;
    } finally {
      if (link !== undefined) this.#reading.delete(link);
      if (link?.shared === true) this.#claimed.delete(link);
      this.#quotas.closeSpares();
    }
  }

  #onListingFailed(client: Era, features: ClientFeatures, error: GatewayError): void {
    const era = this.#likelyEra(client);
    if (this.#lifecycles.in(era).phase === 'ready')
      this.#lifecycles.step(era, { kind: 'list-failed', reason: reasonOf(error) });
    if (features.capabilityKey === '' || this.#isProcess) this.#retryListing(client, features);
  }

  /**
   * Reads the lists over this link; in the modern era, for clients with these capabilities.
   *
   * @throws {GatewayError} if one of the lists cannot be read.
   */
  list(link: Link<Context, User>, capabilities: RawObject): Promise<Offer> {
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

  #getLink(need: LinkNeed): Promise<Link<Context, User>> {
    const key = need.keyIn(this.#likelyEra(need.clientEra));
    const known = this.#links.get(key);
    if (known !== undefined) return known;
    const opening = this.#open(need).then((link) => this.#placeLink(key, link));
    this.#links.set(key, opening);
    return opening;
  }

  /** Stores a link under its key, which depends on its era. If there is already a link with that key, returns that one. */
  #placeLink(expected: string, link: Link<Context, User>): Link<Context, User> | Promise<Link<Context, User>> {
    const other = this.#links.move(expected, link);
    if (other === undefined) return link;
    this.#live.delete(link);
    void this.#close(link);
    return other;
  }

  async #open(need: LinkNeed): Promise<Link<Context, User>> {
    const { clientEra, principal, keyIn } = need;
    await awaitAdmission(this.id, () => this.#lifecycles.in(this.#likelyEra(clientEra)), this.#stopping.signal);
    const request = { principal, waitMs: this.config.queueMs, signal: this.#stopping.signal };
    const release = await this.#quotas.acquire(request);
    try {
      const clientCapabilities = this.usableCapabilities(need.clientCapabilities);
      const placeIn = (era: Era) => ({ key: keyIn(era), shared: isSharedKey(keyIn(era)) });
      const starting = this.#start({ ...need, clientCapabilities, placeIn });
      const link = await traceStart(this.#parts.tracing, need.span, this.id, starting);
      if (this.#live.has(link)) this.#slots.set(link, release);
      else release();
      return link;
    } catch (thrown) {
      release();
      throw thrown;
    }
  }

  async #start(order: LinkRequest): Promise<Link<Context, User>> {
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
      const { reason, detail, scope, cause, error } = startFailure(this.config, order.audience, thrown);
      this.#log.warn({ err: cause }, 'upstream did not start');
      this.#parts.onStartFailed();
      const isRemote = !this.#isProcess;
      this.#lifecycles.step(expected, {
        kind: 'start-failed',
        scope,
        reason,
        detail,
        permanent: false,
        isRemote,
        startedMs,
      });
      throw error;
    }
  }

  /** Returns a function that closes a connection without a client; undefined if there is none. */
  #findSpare(): (() => Promise<void>) | undefined {
    for (const link of this.#live) {
      const isSpare =
        link.users.size === 0 && isIdle(link) && !staysOpen(link, this.config) && !this.#claimed.has(link);
      if (isSpare) return () => this.#discard(link, 'released');
    }
    return undefined;
  }

  #remove(link: Link<Context, User>): boolean {
    if (!this.#live.delete(link)) return false;
    this.#links.remove(link.key);
    return true;
  }

  #discard(link: Link<Context, User>, reason: CloseReason): Promise<void> {
    if (!this.#remove(link)) return Promise.resolve();
    this.#events.onLinkClosed(link, reason);
    return this.#close(link);
  }

  #onLost(link: Link<Context, User>, error: GatewayError): void {
    if (!this.#remove(link)) return;
    // The loss of a session is not a crash.
    const isForgotten = error.code === 'upstream-session-lost';
    const early = !link.hasAnsweredCall && !isForgotten;
    this.#lifecycles.step(link.era, { kind: 'lost', reason: reasonOf(error), detail: detailOf(error), early });
    this.#log.warn({ err: error }, 'upstream connection lost');
    // The transport may still have a process that is ending.
    void this.#close(link);
    this.#events.onLinkClosed(link, isForgotten ? 'forgotten' : 'crash');
    if (staysOpen(link, this.config)) this.#retryListing(link.era);
  }

  #close(link: Link<Context, User>): Promise<void> {
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
    void retryUntilDone(() => this.refresh(client, features, EVERYBODY), waitMs, signal).finally(() =>
      this.#retryingListing.delete(client),
    );
  }
}

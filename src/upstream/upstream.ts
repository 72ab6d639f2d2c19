import type { Logger } from 'pino';
import type { Offer } from '../catalog/offer.ts';
import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { type GatewayError, toGatewayError } from '../errors.ts';
import type { RawObject } from '../json/json.ts';
import type { Era, Revision } from '../protocol/revisions.ts';
import { traceStart } from '../telemetry/tracing/mcp-spans.ts';
import type { Span } from '../telemetry/tracing/tracing.ts';
import { adopt } from './adoption.ts';
import { awaitOpening } from './lifecycle/await-opening.ts';
import { drain } from './drain.ts';
import type { Attachment } from './link/attachment.ts';
import { detailOf, reasonOf, retiredError, startFailure } from './start-failure.ts';
import { ConcurrencyLimiter } from './quota/concurrency-limiter.ts';
import { audienceOf, connectionPlace, type ConnectionScope, discoveryPlace, EVERYBODY } from './connection-key.ts';
import type { Eras } from './link/eras.ts';
import { type FailureScope, isFailed, isUp, type Lifecycle } from './lifecycle/lifecycle.ts';
import { Lifecycles, type OverallLifecycle } from './lifecycle/lifecycles.ts';
import type { ConnectionPermit } from './quota/connection-quota.ts';
import { UpstreamQuotas } from './quota/quotas.ts';
import { type ClientFeatures, type CloseReason, type Link, type LinkUser, NO_FEATURES } from './link/link.ts';
import { isUnauthorized, mayBeDown } from './link/era-evidence.ts';
import { type Listing, listOffer } from './link/listing.ts';
import { LinkChecks } from './link-checks.ts';
import { Crashes } from './crashes.ts';
import { ListingRetries } from './listing-retries.ts';
import { closesWithUsers, isExpired, isSpare, isUnused, staysOpen } from './idle-links.ts';
import { type LinkNeed, type LinkRequest, Opener } from './link/opener.ts';
import { SingleRuns } from './single-runs.ts';
import type { UpstreamEvents } from './upstream-events.ts';
import { isPlaced, UpstreamLinks } from './upstream-links.ts';
import type { UpstreamParts } from './upstream-parts.ts';
import { type CapabilityFilter, capabilityFilter } from './link/usable-capabilities.ts';

/** One configured MCP server: its state in each era, its connections, and its lists. */
export class Upstream<Context, User extends LinkUser> {
  readonly limiter: ConcurrencyLimiter;
  readonly isProcess: boolean;
  /** Returns the part of the client capabilities that is declared to this upstream. */
  readonly usableCapabilities: CapabilityFilter;
  readonly #parts: UpstreamParts;
  readonly #events: UpstreamEvents<Context, User>;
  readonly #log: Logger;
  readonly #opener: Opener<Context, User>;
  readonly #links = new UpstreamLinks<Context, User>();
  readonly #stopping = new AbortController();
  readonly #listings = new SingleRuns<void>();
  readonly #checks: LinkChecks;
  readonly #lifecycles = new Lifecycles((after) => this.#onLifecycle(after));
  readonly #retries: ListingRetries;
  readonly #crashes = new Crashes();
  /** The revision that was last negotiated in each era. */
  readonly #revisions: Partial<Record<Era, Revision>> = {};
  readonly #quotas: UpstreamQuotas;
  #config: UpstreamConfig;
  readonly #retired = new AbortController();
  /** True if a client has been served. Before that, the process that read the lists is kept for the first client. */
  #hasServed = false;
  #lastCall = 0;

  constructor(parts: UpstreamParts, events: UpstreamEvents<Context, User>) {
    const { config } = parts;
    this.#config = config;
    const { id, concurrency, queue, queueMs, maxConnections } = config;
    this.limiter = new ConcurrencyLimiter(id, concurrency, queue, queueMs, parts.shares);
    this.usableCapabilities = capabilityFilter(config.isolation === 'shared' ? [] : config.clientFeatures);
    this.#parts = parts;
    this.#events = events;
    this.#log = parts.log.child({ upstream: config.id });
    const timeouts = () => this.#config.timeouts;
    this.#opener = new Opener({ ...parts, upstream: id, timeouts, log: this.#log });
    const state = { links: this.#links, opener: this.#opener, lifecycles: this.#lifecycles };
    this.#checks = new LinkChecks({ ...state, events, log: this.#log, stopping: this.#stopping.signal });
    this.#retries = new ListingRetries({
      refresh: (era, features) => this.refresh(era, features, EVERYBODY),
      waitMs: (era) => this.#lifecycles.in(this.#likelyEra(era)).retryAtMs - performance.now(),
      signal: AbortSignal.any([this.#stopping.signal, this.#retired.signal]),
    });
    this.isProcess = parts.transports.some(({ isProcess }) => isProcess);
    this.#quotas = new UpstreamQuotas(id, maxConnections, parts.quota, parts.shares, () => this.#findSpare());
    if (config.problem !== undefined) this.#lifecycles.stepAll({ kind: 'unusable', reason: config.problem });
  }

  get config(): UpstreamConfig {
    return this.#config;
  }

  get id(): string {
    return this.#config.id;
  }

  /**
   * Applies settings that open connections do not depend on. The others must be equal (`diffConfigs` in `config/changes/diff.ts` decides);
   * a change of those needs another upstream.
   */
  update(config: UpstreamConfig): void {
    const { problem } = config;
    if (problem !== undefined && problem !== this.#config.problem)
      this.#lifecycles.stepAll({ kind: 'unusable', reason: problem });
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
    for (const link of this.#links) link.isRetired = true;
  }

  /** The combined state of the upstream in the eras in use. */
  get lifecycle(): OverallLifecycle {
    return this.#lifecycles.overall;
  }

  get eras(): Eras {
    return this.#opener.eras;
  }

  servingEra(client: Era): Era | undefined {
    return this.#opener.servingEra(client);
  }

  /** Returns the revision last negotiated in this era; undefined before the first link. */
  revisionIn(era: Era): Revision | undefined {
    return this.#revisions[era];
  }

  get connections(): number {
    return this.#links.size;
  }

  links(): Iterable<Link<Context, User>> {
    return this.#links;
  }

  /** Returns the audience of the connections and lists for a principal: the principal, or everybody. */
  audienceOf(principal: string): string {
    return audienceOf(this.#parts.credentials, principal);
  }

  /** Returns whether lists depend on the capabilities of clients, because connections declare those of single clients. */
  get listsByCapabilities(): boolean {
    return this.config.isolation !== 'shared';
  }

  /**
   * Returns whether clients of this era that can answer questions need a connection for each call. A server request does not show to which
   * call it belongs. Also true before the first link has shown it.
   */
  needsOwnConnection(client: Era): boolean {
    const { isolation } = this.config;
    const isOfOneClient = isolation === 'session' || isolation === 'call';
    return isOfOneClient && this.servingEra(client) !== 'modern' && this.#opener.hasCallStreams !== true;
  }

  /**
   * Returns the link that serves this user. Opens it if necessary.
   *
   * @param span the span that a start of the upstream is a part of; undefined if there is none.
   * @param kept the session of the upstream that an earlier link of this user had. Used if no other user shares it.
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`
   */
  async link(user: User, span?: Span, kept?: Attachment): Promise<Link<Context, User>> {
    const { isolation } = this.config;
    const attachment = isolation === 'session' ? kept : undefined;
    const call = isolation === 'call' ? ++this.#lastCall : 0;
    // A connection for all clients declares no client capabilities.
    const { clientCapabilities, capabilityKey } = isolation === 'shared' ? NO_FEATURES : user;
    const { era: clientEra, principal } = user;
    const placeIn = (era: Era) => connectionPlace(this.#scope(era), user, call);
    const audience = this.audienceOf(principal);
    const need = { clientEra, clientCapabilities, capabilityKey, principal, audience, attachment, placeIn, span };
    let link = await (this.#adoptDiscovery(need) ?? this.#getLink(need));
    while (!isPlaced(link, placeIn)) link = await this.#getLink(need);
    link.users.add(user);
    this.#links.unclaim(link);
    this.#hasServed = true;
    return link;
  }

  /**
   * Gives the discovery connection of these features to a client, so that no second process is started. That process has
   * served no client, and got the same capabilities. Returns undefined if there is none, or if the client has a link.
   */
  #adoptDiscovery(need: LinkNeed): Promise<Link<Context, User>> | undefined {
    // A server asks for roots right after its start, when no client can answer yet.
    if (this.usableCapabilities(need.clientCapabilities).raw('roots') !== undefined) return undefined;
    const era = this.#likelyEra(need.clientEra);
    const place = need.placeIn(era);
    if (!this.isProcess || place.purpose === 'all' || this.#links.find(place.key) !== undefined) return undefined;
    const from = discoveryPlace(this.#scope(era), need.capabilityKey, need.audience);
    return adopt(this.#links, from.key, place, need.principal, () => this.#getLink(need));
  }

  #scope(era: Era): ConnectionScope {
    return { isolation: this.config.isolation, era, isProcess: this.isProcess, credentials: this.#parts.credentials };
  }

  /** Keeps this link in use until {@link endCall}. */
  beginCall(link: Link<Context, User>): void {
    link.calls++;
  }

  endCall(link: Link<Context, User>): void {
    link.calls--;
    this.leave(link);
  }

  /** Closes a link that has served its only call. One that has no users any more may make room for a client that waits. */
  leave(link: Link<Context, User>): void {
    link.usedMs = performance.now();
    if (link.place.purpose === 'call' && link.calls === 0) void this.#discard(link, 'released');
    else if (link.users.size === 0) this.#quotas.closeSpares();
  }

  /** Releases the links of this user. Closes those that serve no other user, if only for a client that waits. */
  releaseUser(user: User): void {
    let isClosing = false;
    for (const link of this.#links) {
      if (!link.users.delete(user) || link.users.size > 0 || !closesWithUsers(link, this.config)) continue;
      isClosing = true;
      void this.#discard(link, 'released');
    }
    if (!isClosing) this.#quotas.closeSpares();
  }

  /** Closes links that were not used for the configured time. @param nowMs monotonic. */
  closeIdleLinks(nowMs: number): void {
    for (const link of this.#links.withoutReading())
      if (this.#links.isDone(link)) void this.#discard(link, 'released');
      else if (isExpired(link, this.config, this.#hasServed, nowMs)) void this.#discard(link, 'idle');
  }

  /**
   * Reads the lists for clients of this era with these features. Simultaneous calls share one listing.
   *
   * @param audience from {@link audienceOf}.
   * @throws {GatewayError} if a list cannot be read; clients get the others all the same. The state of the upstream shows it, unless it concerns one principal.
   */
  refresh(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    if (this.isRetired) return Promise.reject(retiredError(this.id));
    // Without a principal there are no credentials. Each principal lists for itself.
    if (audience === EVERYBODY && this.#parts.credentials === 'principal') return Promise.resolve();
    const key = this.#listingKey(client, features, audience);
    return this.#listings.run(key, () => this.#refresh(client, features, audience));
  }

  /** Returns a promise of the end of a running {@link refresh}, which never rejects; undefined if none runs. */
  runningRefresh(client: Era, features: ClientFeatures, audience: string): Promise<void> | undefined {
    return this.#listings.settled(this.#listingKey(client, features, audience));
  }

  /** Reads lists that have changed, after a running listing that may have begun before the change. @throws {GatewayError} */
  async relist(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    await this.runningRefresh(client, features, audience);
    await this.refresh(client, features, audience);
  }

  #listingKey(client: Era, { capabilityKey }: ClientFeatures, audience: string): string {
    return `${this.#likelyEra(client)} ${capabilityKey} ${audience}`;
  }

  #likelyEra(client: Era): Era {
    return this.servingEra(client) ?? client;
  }

  /** Reads the lists. Never over the connection of a single client, whose lists may be private. */
  async #refresh(client: Era, features: ClientFeatures, audience: string): Promise<void> {
    const { clientCapabilities, capabilityKey } = features;
    let link: Link<Context, User> | undefined;
    let reading: Promise<Listing> | undefined;
    try {
      const placeIn = (era: Era) => discoveryPlace(this.#scope(era), capabilityKey, audience);
      const need = { clientEra: client, clientCapabilities, capabilityKey, principal: audience, audience, placeIn };
      do link = await this.#getLink(need);
      while (!isPlaced(link, placeIn));
      // It is not idle while its server is asked.
      link.usedMs = performance.now();
      // The listing of a new process begins in the turn of its opening, before a client can adopt the process.
      const checking = this.#checks.beforeListing(link);
      if (checking !== undefined && (await checking))
        do link = await this.#getLink(need);
        while (!isPlaced(link, placeIn));
      this.#checks.onListing(link);
      const offerKey = { era: link.era, capabilityKey, audience };
      reading = this.list(link, clientCapabilities, () => this.#events.knownLists(this.id, offerKey));
      this.#links.beginReading(link, reading);
      const { offer, failure } = await reading;
      if (!this.isRetired) await this.#events.prepareLists(this.id, offer);
      if (!this.isRetired) this.#events.onLists(this.id, offerKey, offer, failure === undefined);
      if (failure !== undefined) throw failure;
      this.#lifecycles.step(link.era, { kind: 'listed' });
      if (audience === EVERYBODY) this.#retries.remove(client, features);
      // It has done its work: clients with these features hear of changes over connections of their own. Reported changes are read over it until
      // it is idle. The server may report the same on each new connection.
      const isSpare = (this.#hasServed || !this.isProcess) && !link.hasReportedChange;
      if (isSpare && link.capabilityKey !== '' && link.place.purpose === 'discovery')
        void this.#discard(link, 'released');
    } catch (thrown) {
      const error = toGatewayError(thrown);
      if (audience === EVERYBODY) this.#onListingFailed(client, features, error);
      throw error;
    } finally {
      if (link !== undefined) this.#links.endReading(link, reading);
      this.#quotas.closeSpares();
    }
  }

  #onListingFailed(client: Era, features: ClientFeatures, error: GatewayError): void {
    const era = this.#likelyEra(client);
    const reason = reasonOf(error);
    if (isUnauthorized(error)) this.#lifecycles.step(era, { kind: 'unauthorized', reason, detail: detailOf(error) });
    else if (this.#lifecycles.in(era).phase === 'ready') this.#lifecycles.step(era, { kind: 'list-failed', reason });
    this.#retryListing(client, features);
    if (!this.isProcess && mayBeDown(error)) void this.#checks.afterFailure(era);
  }

  /**
   * Reads the lists over this link; in the modern era, for clients with these capabilities.
   *
   * @param known as in `ListingOptions`.
   * @throws {GatewayError} if no list can be read.
   */
  async list(link: Link<Context, User>, capabilities: RawObject, known: () => Offer | undefined): Promise<Listing> {
    link.usedMs = performance.now();
    if (link.subscription?.beginning !== undefined) await link.subscription.beginning;
    const { onLimit, onListed } = this.#parts;
    const usable = this.usableCapabilities(capabilities);
    const timeoutMs = this.config.timeouts.callMs;
    return await listOffer(link, { capabilities: usable, timeoutMs, onLimit, onListed, known });
  }

  drain(limitMs: number): Promise<number> {
    return drain(this.limiter, this.#links, limitMs);
  }

  /** Closes every connection. No link can be opened afterwards. Resolves when all are closed, in bounded time. */
  async stop(): Promise<void> {
    this.#lifecycles.stepAll({ kind: 'stopped' });
    this.#stopping.abort();
    for (const link of this.#links) void this.#discard(link, 'released');
    await this.#links.whenOpened();
    for (const link of this.#links) void this.#discard(link, 'released');
    await Promise.all([this.#links.whenClosed(), this.#checks.whenEnded()]);
    this.#quotas.leave();
  }

  #onLifecycle(after: Lifecycle): void {
    const { phase, reason, detail } = after;
    // Problems that an operator may have to know of.
    const level = isFailed(after) || phase === 'degraded' ? 'warn' : 'info';
    const wasUnused = phase === 'stopped' && !this.#hasServed && this.connections === 0;
    if (!wasUnused) this.#log[level]({ phase, reason, detail }, 'upstream state');
    if (!this.isRetired) this.#events.onStateChange(this.id, after);
  }

  #getLink(need: LinkNeed): Promise<Link<Context, User>> {
    const { key } = need.placeIn(this.#likelyEra(need.clientEra));
    const known = this.#links.find(key);
    const opening = known ?? this.#open(need).then((link) => this.#links.place(key, link));
    if (known === undefined) this.#links.setOpening(key, opening);
    return opening;
  }

  async #open(need: LinkNeed): Promise<Link<Context, User>> {
    const { clientEra, placeIn } = need;
    this.#crashes.assertNoLoop(this.id, need.principal);
    await awaitOpening(this.id, () => this.#lifecycles.in(this.#likelyEra(clientEra)), this.#stopping.signal);
    const { purpose, closed } = placeIn(this.#likelyEra(clientEra));
    // A connection for all clients of an audience counts for none of them.
    const principal = purpose === 'all' ? need.audience : need.principal;
    const signal = closed === undefined ? this.#stopping.signal : AbortSignal.any([this.#stopping.signal, closed]);
    const permit = await this.#quotas.acquire({ principal, waitMs: this.config.queueMs, signal });
    try {
      const order = { ...need, clientCapabilities: this.usableCapabilities(need.clientCapabilities) };
      return await traceStart(this.#parts.tracing, need.span, this.id, this.#start(order, permit));
    } catch (thrown) {
      permit.release();
      throw thrown;
    }
  }

  async #start(order: LinkRequest, permit: ConnectionPermit): Promise<Link<Context, User>> {
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
            this.#links.add(link, permit);
          },
          onNotification: (link, notification, about) => this.#events.onNotification(link, notification, about),
          onServerRequest: (link, request) => this.#events.onServerRequest(link, request),
          onGap: (link) => this.#events.onGap(link),
          onUnauthorized: (link, error) => void this.#onUnauthorized(link, error),
          onRefused: (link) => void this.#listIf(this.#checks.afterRefusal(link), link),
          onMaybeDown: (link) => void this.#listIf(this.#checks.mayBeDown(link), link),
          onClose: (link, error) => this.#onLost(link, error),
        },
        signal,
      );
      this.#revisions[link.era] = link.hello.revision;
      this.#lifecycles.step(link.era, { kind: 'connected' });
      if (link.era !== expected) this.#lifecycles.reset(expected, this.#links.isOpenIn(expected));
      if (this.eras !== erasBefore && !this.isRetired) this.#events.onEras(this.id, this.eras);
      return link;
    } catch (thrown) {
      const { cause, error, isUnstarted, ...failure } = startFailure(this.config, order.audience, thrown);
      this.#log[this.#stopping.signal.aborted ? 'debug' : 'warn']({ err: cause }, 'upstream did not start');
      // A failure for one caller, such as a refused token, says nothing about the upstream.
      if (failure.scope === 'upstream') this.#parts.onStartFailed();
      const why = { ...failure, hasNoProcess: !this.isProcess || isUnstarted, isServing: this.#isServingIn(expected) };
      this.#lifecycles.step(expected, { kind: 'start-failed', startedMs, ...why });
      void this.#retryFailed(expected, order, failure.scope);
      throw error;
    }
  }

  /** Returns whether clients of an era are served. The open connections of a remote server are no sign of life, so one that is down stays so. */
  #isServingIn(era: Era): boolean {
    return this.#links.isOpenIn(era) && (this.isProcess || isUp(this.#lifecycles.in(era)));
  }

  /** Asks in both eras after a failed start, and repeats the listing, as no client may come while the upstream is down. While some are served, they try. */
  async #retryFailed(era: Era, order: LinkRequest, scope: FailureScope): Promise<void> {
    const asks = !this.isProcess && scope === 'upstream';
    for (const one of asks ? this.#links.inOtherEra(era) : []) void this.#listIf(this.#checks.mayBeDown(one), one);
    if (asks) await this.#checks.afterFailure(era);
    if (order.audience === EVERYBODY && isFailed(this.#lifecycles.in(era))) this.#retryListing(order.clientEra, order);
  }

  /** Returns a function that closes a connection without a client; undefined if there is none. */
  #findSpare(): (() => Promise<void>) | undefined {
    const isFree = (link: Link<Context, User>) => isSpare(link, this.config, this.#links) || this.#links.isDone(link);
    for (const link of this.#links.withoutReading())
      if (isFree(link) && this.#links.recordOf(link)?.isClaimed !== true) return () => this.#discard(link, 'released');
    return undefined;
  }

  #discard(link: Link<Context, User>, reason: CloseReason): Promise<void> {
    const record = this.#links.remove(link);
    if (record === undefined) return Promise.resolve();
    this.#events.onLinkClosed(link, reason);
    return this.#links.close(record);
  }

  /** Reads the lists if a check of a link asks for that. After a failure, the listing is repeated. */
  async #listIf(check: Promise<boolean>, link: Link<Context, User>): Promise<void> {
    if (await check) await this.refresh(link.era, NO_FEATURES, link.audience).catch(() => undefined);
  }

  #onLost(link: Link<Context, User>, error: GatewayError): void {
    const record = this.#links.remove(link);
    if (record === undefined) return;
    // The loss of a session is not a crash.
    const isForgotten = error.code === 'upstream-session-lost';
    const isNoProblem = isForgotten && isUnused(link, performance.now());
    const early = !link.hasAnsweredCall && !isForgotten && !(this.isProcess && this.#crashes.record(link));
    const isServing = this.#isServingIn(link.era);
    const why = { reason: reasonOf(error), detail: detailOf(error), hasNoProcess: !this.isProcess, isServing };
    const isLeft = this.#likelyEra(link.era) !== link.era && !this.#links.isOpenIn(link.era);
    if (isLeft) this.#lifecycles.forget(link.era);
    else if (!isNoProblem) this.#lifecycles.step(link.era, { kind: 'lost', early, ...why });
    this.#log[isNoProblem ? 'info' : 'warn']({ err: error }, 'upstream connection lost');
    // The transport may still have a process that is ending.
    void this.#links.close(record);
    this.#events.onLinkClosed(link, isForgotten ? 'forgotten' : 'crash');
    if (staysOpen(link, this.config)) this.#retryListing(link.era);
  }

  /** Credentials of one principal say nothing about the upstream. The others are tried again, as an operator may have corrected them. */
  async #onUnauthorized(link: Link<Context, User>, error: GatewayError): Promise<void> {
    if (link.audience !== EVERYBODY) return;
    const isKnown = this.#lifecycles.in(link.era).phase === 'needs-authorization';
    const answers = isKnown ? undefined : await this.#checks.afterRequest(link);
    if (answers === true) return;
    const refused = { kind: 'unauthorized', reason: reasonOf(error), detail: detailOf(error) } as const;
    // A closed connection gets no answer, such as that of a single call. Then the listing shows it.
    if (answers === undefined) this.#lifecycles.step(link.era, refused);
    this.#retryListing(link.era);
  }

  /** Repeats the listing until it succeeds. A process is started for the clients that it can serve afterwards. */
  #retryListing(client: Era, features: ClientFeatures = NO_FEATURES): void {
    if (this.config.problem !== undefined || this.isRetired) return;
    this.#retries.add(client, this.isProcess ? features : NO_FEATURES);
  }
}

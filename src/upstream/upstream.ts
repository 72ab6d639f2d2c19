import type { Logger } from 'pino';
import type { Offer } from '../catalog/offer.ts';
import type { UpstreamConfig } from '../config/config.ts';
import { GatewayError, toGatewayError } from '../errors.ts';
import type { LimitName } from '../limits.ts';
import type { RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import type { ServerRequest } from './rpc/connection.ts';
import { awaitAdmission } from './await-admission.ts';
import { ConcurrencyLimiter } from './concurrency-limiter.ts';
import { CONFIGURED, type Lifecycle, type LifecycleEvent, step } from './lifecycle.ts';
import type { ProcessQuota, Idle } from './process-quota.ts';
import { type ClientFeatures, isIdle, type Link, type LinkUser } from './link.ts';
import { listOffer } from './listing.ts';
import { type LinkOrder, Opener, SHARED } from './opener.ts';
import { retryUntilDone } from './retry-until-done.ts';
import { detailOf, reasonOf } from './reason.ts';
import type { TransportOption } from './rpc/transport.ts';

/** What an upstream's connections tell the middle. Called in the order of arrival; must return without waiting. */
export interface UpstreamEvents<Owner, User extends LinkUser> {
  onNotification(link: Link<Owner, User>, notification: Notification, about: Owner | undefined): void;
  onServerRequest(link: Link<Owner, User>, ask: ServerRequest<Owner>): void;
  /**
   * A link is no more. With an error it ended by itself: whoever used it has lost what the upstream kept for them.
   */
  onLinkClosed(link: Link<Owner, User>, error: GatewayError | undefined): void;
  /** The upstream's state changed. */
  onStateChange(upstream: string, after: Lifecycle): void;
  /** The lists of the clients of one profile are now these. */
  onLists(upstream: string, capabilityKey: string, offer: Offer): void;
}

export interface UpstreamParts {
  readonly config: UpstreamConfig;
  /** Ways to reach it, the preferred first. */
  readonly transports: readonly TransportOption[];
  /** Shared by all stdio upstreams; undefined for remote ones. */
  readonly quota: ProcessQuota | undefined;
  readonly clientInfo: RawObject;
  readonly log: Logger;
  readonly onLimit: (limit: LimitName) => void;
}

const SCOUT = 'scout ';

/** A process that was started for its lists alone is kept a little, to hear whether they change at once. */
const SCOUT_IDLE_MS = 10_000;

/** One configured MCP server: its state, its connections by whom they serve, and how to ask it for its lists. */
export class Upstream<Owner, User extends LinkUser> {
  readonly config: UpstreamConfig;
  readonly limiter: ConcurrencyLimiter;
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
  #opening = 0;
  #lifecycle: Lifecycle = CONFIGURED;
  #lastCall = 0;
  #isReviving = false;

  constructor(parts: UpstreamParts, events: UpstreamEvents<Owner, User>) {
    const { config } = parts;
    this.config = config;
    this.limiter = new ConcurrencyLimiter(config.id, config.concurrency, config.queue, config.queueMs);
    this.#parts = parts;
    this.#events = events;
    this.#log = parts.log.child({ upstream: config.id });
    const { transports, clientInfo } = parts;
    const { startMs, callMs } = config.timeouts;
    this.#opener = new Opener({
      upstream: config.id,
      transports,
      clientInfo,
      startMs,
      callMs,
      log: this.#log,
    });
    parts.quota?.join(() => this.#longestIdle());
    if (config.problem !== undefined) {
      this.#step({ kind: 'start-failed', reason: config.problem, detail: undefined, permanent: true, begunMs: 0 });
    }
  }

  get id(): string {
    return this.config.id;
  }

  get lifecycle(): Lifecycle {
    return this.#lifecycle;
  }

  get connections(): number {
    return this.#live.size;
  }

  links(): Iterable<Link<Owner, User>> {
    return this.#live;
  }

  /** Whether a client's own connection sees what no other does, so that lists are had per profile. */
  get isPersonal(): boolean {
    return this.config.isolation !== 'shared';
  }

  /** Whether it is known to be of the modern era. */
  get isModern(): boolean {
    return this.#opener.isModern;
  }

  /** Whether what it asks tells nothing of the call it asks about, so that calls which may be asked about go one by one. */
  get needsOwnConnection(): boolean {
    const { isolation, target } = this.config;
    const isPrivate = isolation === 'session' || isolation === 'call';
    return isPrivate && target.kind !== 'http' && !this.#opener.isModern;
  }

  /**
   * The connection that serves this user, opened if need be.
   *
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`
   */
  async link(user: User): Promise<Link<Owner, User>> {
    const { isolation } = this.config;
    const link = await (isolation === 'shared' ? this.#get(SHARED.key, SHARED) : this.#get(this.#key(user), user));
    link.users.add(user);
    return link;
  }

  #key(user: User): string {
    switch (this.config.isolation) {
      case 'session':
        return `session ${user.key}`;
      case 'principal':
        return `principal ${user.capabilityKey} ${user.principal}`;
      case 'call':
        return `call ${++this.#lastCall}`;
      case 'shared':
        return SHARED.key;
    }
  }

  /** Says that a call on this link ended: a link made for one call ends with it. */
  onCallEnd(link: Link<Owner, User>): void {
    link.usedMs = performance.now();
    if (this.config.isolation === 'call' && link.key.startsWith('call ')) void this.#discard(link);
  }

  /** Lets go of what was kept for this user. */
  releaseUser(user: User): void {
    for (const link of this.#live) {
      if (!link.users.delete(user)) continue;
      if (link.users.size === 0 && !link.shared && this.config.isolation !== 'principal') void this.#discard(link);
    }
  }

  /** Closes what nobody has used for the configured time. */
  reap(nowMs: number): void {
    for (const link of this.#live) {
      const limitMs = isDiscovery(link) ? Math.min(SCOUT_IDLE_MS, this.config.idleMs) : this.config.idleMs;
      if (isIdle(link) && nowMs - link.usedMs > limitMs && !this.#isKept(link)) void this.#discard(link);
    }
  }

  /** A remote server's news, and a shared process, are worth a standing connection; an idle private process is not. */
  #isKept(link: Link<Owner, User>): boolean {
    const isStanding = this.config.target.kind !== 'stdio' || this.config.isolation === 'shared';
    return link.shared && link.capabilityKey === '' && isStanding;
  }

  /**
   * Asks for the lists as clients with these features see them. One such round at a time; who comes later joins it.
   *
   * @throws {GatewayError} when they cannot be had; the upstream's state says so too.
   */
  refresh(features: ClientFeatures = SHARED): Promise<void> {
    const { capabilityKey } = features;
    const running = this.#refreshing.get(capabilityKey);
    if (running !== undefined) return running;
    const round = this.#refresh(features).finally(() => this.#refreshing.delete(capabilityKey));
    this.#refreshing.set(capabilityKey, round);
    return round;
  }

  /** The lists changed: asks for them once more after a round that may have begun before the change. @throws {GatewayError} */
  async relist(features: ClientFeatures): Promise<void> {
    await this.#refreshing.get(features.capabilityKey)?.catch(() => undefined);
    await this.refresh(features);
  }

  /** Never by a client's own connection, which may show what nobody else is to see. */
  async #refresh(features: ClientFeatures): Promise<void> {
    const { capabilityKey } = features;
    try {
      const key = this.config.isolation === 'shared' ? SHARED.key : `${SCOUT}${capabilityKey}`;
      const link = await this.#get(key, features);
      this.#events.onLists(this.id, capabilityKey, await this.list(link, features.clientCapabilities));
      this.#step({ kind: 'listed' });
      // Clients with these features hear of changes on connections of their own.
      if (capabilityKey !== '' && isDiscovery(link)) void this.#discard(link);
    } catch (thrown) {
      const error = toGatewayError(thrown);
      if (this.#lifecycle.phase === 'ready') this.#step({ kind: 'list-failed', reason: reasonOf(error) });
      if (capabilityKey === '') this.#revive();
      throw error;
    }
  }

  /**
   * The lists as this connection sees them, in the modern era those for clients with these capabilities.
   *
   * @throws {GatewayError}
   */
  list(link: Link<Owner, User>, capabilities: RawObject): Promise<Offer> {
    link.usedMs = performance.now();
    const { onLimit } = this.#parts;
    return listOffer(link, { upstream: this.id, capabilities, timeoutMs: this.config.timeouts.callMs, onLimit });
  }

  /** Ends every connection; nothing can be opened afterwards. Resolves when nothing is left, in bounded time. */
  async stop(): Promise<void> {
    this.#step({ kind: 'stopped' });
    this.#stopping.abort();
    for (const link of this.#live) void this.#discard(link);
    await Promise.allSettled(this.#links.values());
    for (const link of this.#live) void this.#discard(link);
    await Promise.allSettled(this.#closing);
  }

  #step(event: LifecycleEvent): void {
    const before = this.#lifecycle;
    this.#lifecycle = step(before, event, performance.now(), Math.random());
    const { phase, reason, detail } = this.#lifecycle;
    if (phase === before.phase && reason === before.reason) return;
    const level = phase === 'failed' || phase === 'degraded' ? 'warn' : 'info';
    this.#log[level]({ phase, reason, detail }, 'upstream state');
    this.#events.onStateChange(this.id, this.#lifecycle);
  }

  #get(wanted: string, features: ClientFeatures): Promise<Link<Owner, User>> {
    const key = this.#opener.isModern ? SHARED.key : wanted;
    const known = this.#links.get(key);
    if (known !== undefined) return known;
    const opening = this.#open(key, features).then((link) => this.#mergeShared(key, link));
    this.#links.set(key, opening);
    opening.catch(() => {
      if (this.#links.get(key) === opening) this.#links.delete(key);
    });
    return opening;
  }

  /** A link may turn out to serve everybody, whomever it was opened for. One such link is enough. */
  #mergeShared(key: string, link: Link<Owner, User>): Link<Owner, User> | Promise<Link<Owner, User>> {
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

  async #open(key: string, { clientCapabilities, capabilityKey }: ClientFeatures): Promise<Link<Owner, User>> {
    await awaitAdmission(this.id, () => this.#lifecycle, this.#stopping.signal);
    await this.#reserve();
    try {
      const slot = await this.#slot();
      try {
        const order = {
          key,
          shared: key === SHARED.key || key.startsWith(SCOUT),
          clientCapabilities,
          capabilityKey,
        };
        const link = await this.#start(order);
        if (this.#live.has(link)) this.#slots.set(link, slot);
        else slot();
        return link;
      } catch (thrown) {
        slot();
        throw thrown;
      }
    } finally {
      this.#opening--;
    }
  }

  /** A place in the budget, and the way to give it back. @throws {GatewayError} `overloaded` */
  async #slot(): Promise<() => void> {
    const { quota } = this.#parts;
    if (quota === undefined) return () => undefined;
    const slot = await quota.acquire();
    if (slot !== undefined) return slot;
    throw new GatewayError('overloaded', { upstream: this.id, message: `all ${quota.limit} processes are in use` });
  }

  async #start(order: LinkOrder): Promise<Link<Owner, User>> {
    const begunMs = performance.now();
    this.#step({ kind: 'starting' });
    try {
      const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(this.config.timeouts.startMs)]);
      const link = await this.#opener.open(
        order,
        {
          onOpen: (link) => this.#live.add(link),
          onNotification: (link, notification, about) => this.#events.onNotification(link, notification, about),
          onServerRequest: (link, ask) => this.#events.onServerRequest(link, ask),
          onClose: (link, error) => this.#onLost(link, error),
        },
        signal,
      );
      this.#step({ kind: 'connected' });
      return link;
    } catch (thrown) {
      const error = toGatewayError(thrown);
      const reason = reasonOf(error);
      this.#log.warn({ err: error }, 'upstream did not start');
      this.#step({ kind: 'start-failed', reason, detail: detailOf(error), permanent: false, begunMs });
      const message = `upstream "${this.id}" did not start: ${reason}`;
      throw new GatewayError('upstream-unavailable', { upstream: this.id, message }, error);
    }
  }

  #longestIdle(): Idle | undefined {
    let longest: Link<Owner, User> | undefined;
    for (const link of this.#live) {
      if (isIdle(link) && !this.#isKept(link) && (longest === undefined || link.usedMs < longest.usedMs))
        longest = link;
    }
    const link = longest;
    return link && { usedMs: link.usedMs, drop: () => this.#discard(link) };
  }

  /** Counts one more as being opened; the longest idle one makes room for it. @throws {GatewayError} `overloaded` */
  async #reserve(): Promise<void> {
    const { maxConnections } = this.config;
    while (this.#live.size + this.#opening >= maxConnections) {
      const idle = this.#longestIdle();
      if (idle === undefined) {
        throw new GatewayError('overloaded', {
          upstream: this.id,
          message: `all ${maxConnections} connections of upstream "${this.id}" are in use`,
        });
      }
      await idle.drop();
    }
    this.#opening++;
  }

  #remove(link: Link<Owner, User>): boolean {
    if (!this.#live.delete(link)) return false;
    this.#links.delete(link.key);
    return true;
  }

  #discard(link: Link<Owner, User>): Promise<void> {
    if (!this.#remove(link)) return Promise.resolve();
    this.#events.onLinkClosed(link, undefined);
    return this.#close(link);
  }

  #onLost(link: Link<Owner, User>, error: GatewayError): void {
    if (!this.#remove(link)) return;
    // A server that forgets its sessions is no server that crashes.
    const early = !link.hasAnswered && error.code !== 'upstream-session-lost';
    this.#step({ kind: 'lost', reason: reasonOf(error), detail: detailOf(error), early });
    this.#log.warn({ err: error }, 'upstream connection lost');
    // The transport may still hold a process that is on its way out.
    void this.#close(link);
    this.#events.onLinkClosed(link, error);
    if (this.#isKept(link)) this.#revive();
  }

  #close(link: Link<Owner, User>): Promise<void> {
    const closing = link.connection.close().finally(() => {
      this.#slots.get(link)?.();
      this.#closing.delete(closing);
    });
    this.#closing.add(closing);
    return closing;
  }

  /** Tries for the lists again until they are had, however long it takes, without anybody asking. */
  #revive(): void {
    if (this.#isReviving || this.config.problem !== undefined) return;
    this.#isReviving = true;
    const { signal } = this.#stopping;
    const waitMs = () => this.#lifecycle.retryAtMs - performance.now();
    void retryUntilDone(() => this.refresh(), waitMs, signal).finally(() => {
      this.#isReviving = false;
    });
  }
}

function isDiscovery<Owner, User extends LinkUser>(link: Link<Owner, User>): boolean {
  return link.key.startsWith(SCOUT);
}

import type { SharedParts } from '../records/shared-parts.ts';
import { ArraySet } from '../../small-collections.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Settings } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import { FairPool } from '../../upstream/quota/fair-pool.ts';
import { clientDialect } from '../dialects/client-dialect.ts';
import { noRoom } from './session-refusals.ts';
import type { Caller } from '../front/caller.ts';
import type { Recipient, Exchange } from '../exchange/exchange.ts';
import { forwardableCapabilities, capabilityKeyOf } from '../exchange/client-capabilities.ts';
import { ConnectionHolder, type Link } from '../exchange/connection-holder.ts';
import { getOrMake } from '../../map-entries.ts';

/** A `subscriptions/listen` stream: receives notifications that belong to no request. */
export interface Subscriber {
  /** The sender of the request that opened the stream. */
  readonly caller: Caller;
  /** True if the access policy gives its caller other rights than when the stream was opened. */
  readonly hasOtherRights: boolean;
  /** Returns whether the stream gets updates of the resource that its client names so. */
  isSubscribedTo(uri: string): boolean;
  announce(method: string, params: RawObject | undefined): void;
  /** Handles a change of a task, which may belong to another client. */
  onTaskChange(link: Link, task: string): void;
  close(): void;
}

/**
 * All modern requests of one principal with the same rights to one endpoint that declare the same capabilities. Modern requests do not
 * identify their client, so legacy upstreams keep for a group the state that they would keep for a client. Requests of the legacy era
 * without a session have groups of their own, in any legacy revision.
 */
export class ClientGroup extends ConnectionHolder {
  readonly isOneClient = false;
  readonly #exchanges = new ArraySet<Exchange>();
  /** The number of unanswered requests, including those in exclusive groups and excluding parked calls. */
  inFlightCount = 0;
  /** The number of requests from the choice of this group to their answer, including those that are still being prepared. */
  openCount = 0;
  /** The counter of its requests in all processes. They have read different numbers of configs, so that its key may be another one there. */
  counterName = `requests ${this.key}`;
  /** Its key among the groups in use. It changes with the access policy, the group's own key does not. */
  readyKey = this.key;
  readonly subscribers = new Set<Subscriber>();
  /** Exclusive groups by upstream, each for one request at a time; see {@link exclusiveFor}. */
  readonly #exclusiveGroups = new Map<string, ClientGroup[]>();
  #lastExclusive = 0;

  get handle(): string {
    return this.key;
  }

  get wantsListChanges(): boolean {
    return this.subscribers.size > 0;
  }

  /** Returns whether no request is in flight and no stream is open. */
  get isQuiet(): boolean {
    return (
      this.openCount === 0 &&
      this.#exchanges.size === 0 &&
      !this.wantsListChanges &&
      [...this.exclusiveGroups()].every(({ isQuiet }) => isQuiet)
    );
  }

  /** Returns whether the group can be released without loss: no request is in flight, and no upstream keeps state for it. */
  get isReleasable(): boolean {
    return this.isQuiet && [this, ...this.exclusiveGroups()].every(({ linkPromises }) => linkPromises.size === 0);
  }

  /**
   * Returns the group whose link carries a request to an upstream whose questions do not name their call. It is this group, unless it has
   * such a request in flight, or an exclusive one.
   */
  exclusiveFor(upstream: string, make: (key: string) => ClientGroup): ClientGroup {
    if (this.#isUnusedAt(upstream)) return this;
    const exclusiveGroups = getOrMake(this.#exclusiveGroups, upstream, () => []);
    const free = exclusiveGroups.find((exclusive) => exclusive.#isUnusedAt(upstream));
    if (free !== undefined) return free;
    const exclusive = make(`${this.key} ${++this.#lastExclusive}`);
    exclusiveGroups.push(exclusive);
    return exclusive;
  }

  #isUnusedAt(upstream: string): boolean {
    for (const exchange of this.#exchanges) if (exchange.upstream === upstream) return false;
    return true;
  }

  /** Yields the exclusive groups for all upstreams. */
  *exclusiveGroups(): Iterable<ClientGroup> {
    for (const exclusiveGroups of this.#exclusiveGroups.values()) yield* exclusiveGroups;
  }

  /** Removes exclusive groups that have neither a request nor a link. */
  removeIdleExclusives(onRemove: (exclusive: ClientGroup) => void): void {
    for (const [upstream, exclusiveGroups] of this.#exclusiveGroups) {
      // A connection that is still opening has no request any more if that was cancelled.
      const kept = exclusiveGroups.filter((one) => one.#exchanges.size > 0 || one.linkPromises.size > 0);
      for (const exclusive of exclusiveGroups) if (!kept.includes(exclusive)) onRemove(exclusive);
      if (kept.length === 0) this.#exclusiveGroups.delete(upstream);
      else this.#exclusiveGroups.set(upstream, kept);
    }
  }

  addExchange(exchange: Exchange): void {
    this.#exchanges.add(exchange);
  }

  removeExchange(exchange: Exchange): void {
    this.#exchanges.delete(exchange);
  }

  exchanges(): Iterable<Exchange> {
    return this.#exchanges;
  }

  get streamCount(): number {
    return this.subscribers.size;
  }

  announce(method: string, params: RawObject | undefined): void {
    for (const subscriber of this.subscribers) subscriber.announce(method, params);
  }

  onTaskChange(link: Link, task: string): void {
    for (const subscriber of this.subscribers) subscriber.onTaskChange(link, task);
  }

  onStateKept(): undefined {
    // Groups are not stored, so a restart has no loss to report.
    return undefined;
  }

  onRightsChange(): void {
    // Each stream is judged by the rights that it was opened with.
  }

  onSubscriptionLost(uri: string): void {
    // The acknowledgement of the next stream shows the client what is left.
    for (const subscriber of this.subscribers) if (subscriber.isSubscribedTo(uri)) subscriber.close();
  }

  onLinkOpen(): void {
    // Groups are not stored, so no other process continues their sessions at upstreams.
  }

  sendLog(): void {
    // Modern clients get log messages only on the streams of their requests.
  }

  recipientAt(upstream: string): Recipient | undefined {
    const there = [...this.#exchanges].filter((exchange) => exchange.upstream === upstream);
    const [exchange] = there;
    if (exchange === undefined || there.length > 1) return undefined;
    return { client: exchange.client, exchange, isUnambiguous: true };
  }

  override close(): void {
    super.close();
    for (const subscriber of this.subscribers) subscriber.close();
    for (const exchange of this.#exchanges) exchange.cancel('the gateway released it');
    for (const exclusive of this.exclusiveGroups()) exclusive.close();
  }
}

export interface ClientGroupsParts extends Pick<SharedParts, 'shares' | 'onLimit'> {
  /** Returns the catalog of a holder, made of offers in memory and on disk. */
  loadCatalog(holder: ConnectionHolder): Promise<Catalog>;
  /** Returns a text that is equal for callers with the same rights; empty if there is no access policy. */
  rightsKeyOf(caller: Caller): string;
  /** Runs before a group is released. */
  onRelease(group: ClientGroup): void;
  readonly settings: Settings<'sessions' | 'limits'>;
  /** Returns the endpoint's catalog for clients without capabilities. */
  defaultCatalog(view: string): Catalog;
}

/** The client groups in use, by caller and by principal. */
export class ClientGroups {
  readonly #parts: ClientGroupsParts;
  /** The groups that are being made, by key, of each principal. */
  readonly #pending = new Map<string, Map<string, Promise<ClientGroup>>>();
  readonly #ready = new Map<string, ClientGroup>();
  /** The number of changes of the access policy. A group that is made later has another key than one that was made before. */
  #policies = 0;
  readonly #byPrincipal = new Map<string, Set<ClientGroup>>();
  /** Groups by caller object: most requests of one client have the same one. */
  #byCaller = new WeakMap<Caller, ClientGroup>();
  readonly #pool: FairPool;

  constructor(parts: ClientGroupsParts) {
    this.#parts = parts;
    this.#pool = new FairPool(parts.shares, parts.settings().limits.sessions);
  }

  *[Symbol.iterator](): Iterator<ClientGroup> {
    for (const group of this.#ready.values()) {
      yield group;
      yield* group.exclusiveGroups();
    }
  }

  /** The number of groups, without exclusive ones. */
  get size(): number {
    return this.#ready.size;
  }

  /**
   * Yields the other groups of a group's principal, at all endpoints, that may be of the same client. A session has no siblings: its client has
   * one connection to each upstream.
   */
  *siblingsOf(holder: ConnectionHolder): Iterable<ClientGroup> {
    if (holder.isOneClient) return;
    for (const group of this.ofPrincipal(holder.principal)) {
      if (group !== holder && group.dialect.describesClient === holder.dialect.describesClient) yield group;
    }
  }

  /** Yields the groups of a principal, at all endpoints. */
  *ofPrincipal(principal: string): Iterable<ClientGroup> {
    for (const group of this.#byPrincipal.get(principal) ?? []) {
      yield group;
      yield* group.exclusiveGroups();
    }
  }

  /**
   * Returns the group of a caller; a promise only if the group has to be made.
   *
   * @throws {GatewayError} `invalid-params` for capabilities that are too large; `overloaded`.
   */
  groupFor(caller: Caller, nowMs: number): ClientGroup | Promise<ClientGroup> {
    const claimed = this.#byCaller.get(caller);
    if (claimed !== undefined) {
      claimed.usedMs = nowMs;
      return claimed;
    }
    const key = this.#keyOf(caller);
    const known = this.#ready.get(key);
    if (known !== undefined) {
      known.usedMs = nowMs;
      this.#byCaller.set(caller, known);
      return known;
    }
    const pending = getOrMake(this.#pending, caller.principal.key, () => new Map());
    return getOrMake(pending, key, () => this.#make(key, caller, pending));
  }

  /** Returns the key of the group that serves a caller by the access policy of now. @param reloads the part that only this process knows. */
  #keyOf(caller: Caller, reloads = `${this.#policies} `): string {
    const { capabilities, revision, view, principal } = caller;
    const declared = forwardableCapabilities(capabilities, featuresOf(revision), this.#parts.onLimit);
    const rights = this.#parts.rightsKeyOf(caller);
    const policy = rights === '' ? '' : `${reloads}${rights}`;
    return `${clientDialect(revision).era} ${capabilityKeyOf(declared)} ${view} ${policy}${principal.key}`;
  }

  #counterNameOf(caller: Caller): string {
    return `requests ${this.#keyOf(caller, '')}`;
  }

  /** @param pending the groups of the principal that are being made. */
  async #make(key: string, caller: Caller, pending: Map<string, Promise<ClientGroup>>): Promise<ClientGroup> {
    try {
      return await this.#makeIn(key, caller, pending);
    } finally {
      pending.delete(key);
      const { key: principal } = caller.principal;
      // A later request may have begun with another map.
      if (pending.size === 0 && this.#pending.get(principal) === pending) this.#pending.delete(principal);
    }
  }

  async #makeIn(key: string, caller: Caller, pending: Map<string, Promise<ClientGroup>>): Promise<ClientGroup> {
    const { principal } = caller;
    this.#makeRoom(principal.key);
    this.#pool.take(principal.key);
    try {
      const group = new ClientGroup(key, caller, this.#parts.defaultCatalog(caller.view));
      group.catalog = await this.#parts.loadCatalog(group);
      group.counterName = this.#counterNameOf(caller);
      // A reload of the policy meanwhile has changed the key of the next request.
      const now = this.#keyOf(caller);
      if (!this.#ready.has(now)) group.readyKey = now;
      this.#ready.set(group.readyKey, group);
      pending.delete(key);
      getOrMake(this.#byPrincipal, group.principal, () => new Set()).add(group);
      return group;
    } catch (thrown) {
      this.#pool.release(principal.key);
      throw thrown;
    }
  }

  /**
   * Releases the least recently used group of a principal without loss. It does so if the principal has as many groups as allowed, or if
   * all principals together leave no room. The number is bounded, since clients choose their capabilities.
   *
   * @throws {GatewayError} `overloaded`: no group can be released without loss.
   */
  #makeRoom(principal: string): void {
    const groups = this.#byPrincipal.get(principal) ?? new Set();
    const count = groups.size + (this.#pending.get(principal)?.size ?? 0);
    let oldest: ClientGroup | undefined;
    for (const group of groups) {
      if (group.isReleasable && (oldest === undefined || group.usedMs < oldest.usedMs)) oldest = group;
    }
    const { settings, shares } = this.#parts;
    const { sessions, sessionsPerPrincipal } = settings().limits;
    this.#pool.setCapacity(sessions);
    const hasRoom = this.#pool.hasRoomFor(principal);
    if (count < sessionsPerPrincipal && hasRoom) return;
    if (oldest === undefined && !hasRoom) throw noRoom(this.#pool, shares, principal, sessions);
    if (oldest === undefined) {
      const message =
        `this principal uses ${count} different client configurations, as many as ` +
        'gateway.limits.sessionsPerPrincipal allows; try again later';
      throw new GatewayError('overloaded', { message });
    }
    this.#release(oldest);
  }

  /**
   * Finds the group of each caller again, since its rights may have changed. A group serves callers with the rights that its own caller has
   * now. Ends the streams whose callers have other rights than before, or than the group: they open another one in the group of these
   * rights.
   */
  onPolicyChange(): void {
    this.#policies++;
    this.#byCaller = new WeakMap();
    const groups = [...this.#ready.values()];
    this.#ready.clear();
    for (const group of groups) {
      const key = this.#keyOf(group.caller);
      // Of groups with equal rights one serves later requests. The others end when they are idle.
      group.readyKey = this.#ready.has(key) ? `former ${group.key}` : key;
      this.#ready.set(group.readyKey, group);
      group.counterName = this.#counterNameOf(group.caller);
      const rights = this.#parts.rightsKeyOf(group.caller);
      for (const subscriber of group.subscribers) {
        if (subscriber.hasOtherRights || this.#parts.rightsKeyOf(subscriber.caller) !== rights) subscriber.close();
      }
    }
  }

  /** Releases groups that have not been used for `idleMs`. */
  sweep(nowMs: number): void {
    for (const group of this.#ready.values()) {
      group.removeIdleExclusives((exclusive) => this.#parts.onRelease(exclusive));
      if (group.isQuiet && nowMs - group.usedMs > this.#parts.settings().sessions.idleMs) this.#release(group);
    }
  }

  /** Releases these groups. Their streams end, and their requests in flight are cancelled. */
  releaseWhere(isConcerned: (group: ClientGroup) => boolean): void {
    for (const group of this.#ready.values()) if (isConcerned(group)) this.#release(group);
  }

  #release(group: ClientGroup): void {
    this.#ready.delete(group.readyKey);
    const ofPrincipal = this.#byPrincipal.get(group.principal);
    ofPrincipal?.delete(group);
    if (ofPrincipal?.size === 0) this.#byPrincipal.delete(group.principal);
    this.#byCaller = new WeakMap();
    this.#pool.release(group.principal);
    for (const exclusive of group.exclusiveGroups()) this.#parts.onRelease(exclusive);
    this.#parts.onRelease(group);
    group.close();
  }
}

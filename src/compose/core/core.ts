import type { View } from '../../catalog/view.ts';
import type { Config } from '../../config/values/config.ts';
import { startsWithGateway } from '../../config/values/upstream-config.ts';
import type { ClientGroups } from '../../gateway/clients/client-group.ts';
import { KeyExpiry } from '../../gateway/clients/key-expiry.ts';
import type { SeenClients } from '../../gateway/clients/seen-clients.ts';
import type { Sessions } from '../../gateway/clients/sessions.ts';
import type { Upstreams } from '../../gateway/exchange/connection-holder.ts';
import type { ExternalDecisions } from '../../gateway/exchange/external-decisions.ts';
import type { Gate } from '../../gateway/exchange/gate.ts';
import type { Front } from '../../gateway/front/front.ts';
import type { Offers } from '../../gateway/lists/offers.ts';
import type { ParkedCalls } from '../../gateway/questions/parked-calls.ts';
import type { ProcessUsage } from '../../upstream/stdio/process-usage.ts';
import type { ApplyConfig } from '../reload/apply-config.ts';
import type { UpstreamChanges } from '../reload/upstream-changes.ts';
import type { ClientRequestParts } from './client-requests.ts';
import type { ClientParts } from './clients.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';
import { Sweeper } from './sweeper.ts';
import type { UpstreamMessageParts } from './upstream-messages.ts';

export interface CorePieces
  extends CommonParts, ConnectionParts, ClientParts, UpstreamMessageParts, ClientRequestParts {
  readonly upstreamChanges: UpstreamChanges;
  readonly apply: ApplyConfig;
}

/** The gateway without its listeners: everything that serves a client, over any transport. */
export class Core {
  readonly gateway: Front;
  readonly upstreams: Upstreams;
  readonly offers: Offers;
  /** Decides what clients may use. */
  readonly gate: Gate;
  readonly external: ExternalDecisions;
  /** The endpoints, by id. */
  readonly views: ReadonlyMap<string, View>;
  /** The clients with what is kept for them; for reports to operators. */
  readonly sessions: Sessions;
  readonly groups: ClientGroups;
  readonly seenClients: SeenClients;
  readonly parked: ParkedCalls;
  readonly upstreamChanges: Pick<UpstreamChanges, 'restart' | 'disable' | 'isDisabled' | 'reasonOf'>;
  readonly apply: ApplyConfig;
  readonly #pieces: CorePieces;
  readonly #sweeper: Sweeper;
  readonly #keyExpiry: KeyExpiry;

  constructor(pieces: CorePieces) {
    this.gateway = pieces.gateway;
    this.upstreams = pieces.upstreams;
    this.offers = pieces.offers;
    this.gate = pieces.gate;
    this.external = pieces.external;
    this.views = pieces.views;
    this.sessions = pieces.sessions;
    this.groups = pieces.groups;
    this.seenClients = pieces.seenClients;
    this.parked = pieces.parked;
    this.upstreamChanges = pieces.upstreamChanges;
    this.apply = pieces.apply;
    this.#pieces = pieces;
    this.#sweeper = new Sweeper(pieces);
    this.#keyExpiry = new KeyExpiry(pieces.sealer, pieces.sessions);
  }

  /** The reason why the state cannot be written at the moment, as a sentence; undefined while it can be written. */
  get stateFailure(): string | undefined {
    return this.#pieces.state.sessions.failure;
  }

  /** True if the gateway is of use while the state cannot be written. */
  get servesWithoutState(): boolean {
    return this.#pieces.state.servesWithout;
  }

  /** True if sessions and lists are stored for later processes. */
  get keepsState(): boolean {
    return this.#pieces.state.notice === undefined;
  }

  /** Number of requests without an answer yet. */
  get inFlightCount(): number {
    return this.#pieces.recorder.inFlightCount;
  }

  /** Number of them that no other process of the gateway counts. */
  get ownInFlightCount(): number {
    return this.#pieces.recorder.ownInFlightCount;
  }

  /** Number of calls that wait for the answers of their clients. */
  get parkedCount(): number {
    return [...this.parked.waiting()].length;
  }

  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>> {
    return this.#pieces.transports.processUsage();
  }

  /**
   * Reads the lists and start records that an earlier process has stored. Then it starts the timers, and the upstreams that do not wait
   * for their first use.
   */
  async start(): Promise<void> {
    const { upstreamEvents, offers, records, upstreams, listRefresher } = this.#pieces;
    // Before the lists are read, so that no change is missed.
    await upstreamEvents.sharedOffers.start();
    await offers.restore();
    await records.restore();
    this.#sweeper.start();
    this.#keyExpiry.apply();
    for (const upstream of upstreams.values()) {
      if (startsWithGateway(upstream.config)) void listRefresher.refreshAtStart(upstream);
    }
  }

  /** Starts an upstream and reads its lists. Resolves with whether that succeeded; its state has the reason if not. */
  async startUpstream(id: string): Promise<boolean> {
    const upstream = this.upstreams.get(id);
    return upstream !== undefined && (await this.#pieces.listRefresher.refreshAtStart(upstream));
  }

  /** Starts every upstream and reads its lists once. Resolves when each has succeeded or failed, as its state shows. */
  refresh(): Promise<void> {
    return this.#pieces.listRefresher.refreshAll();
  }

  /** Releases sessions, groups and connections that are unused at this time (monotonic ms). A timer calls it too. */
  sweep(nowMs: number): void {
    this.#sweeper.sweep(nowMs);
  }

  /** Removes cached resources and lists, to free memory. Cursors of lists that have changed end. */
  dropCaches(): void {
    this.#pieces.resourceCache.clear();
    this.#pieces.paged.clear();
  }

  /** Loads what another config needs, and changes nothing. Must come before `apply`. @throws if it cannot be loaded. */
  prepare(next: Config): Promise<void> {
    return this.#pieces.transports.prepare(next);
  }

  /** Lets other processes have all sessions and connections from now on. Requests in flight end here. */
  handOver(): void {
    this.sessions.handOver();
    this.#pieces.connectionOwners.handOver();
  }

  /**
   * Adds a key that seals later handles. Older ones are valid for `graceMs` more, by default for `sessions.maxAge`; 0 ends all sessions.
   * Resolves with a sentence.
   */
  async rotateKeys(graceMs = this.#pieces.settings().sessions.maxAgeMs): Promise<string> {
    const { sealer, log } = this.#pieces;
    await sealer.rotate(graceMs);
    this.#keyExpiry.apply();
    const until = new Date(Date.now() + graceMs).toISOString();
    log.info({ until }, 'sealing keys rotated');
    const sealed = 'A new key seals session ids, cursors and task ids.';
    return graceMs === 0
      ? `${sealed} All older ones are invalid: sessions have ended.`
      : `${sealed} Older ones are valid until ${until}.`;
  }

  /** Uses the keys that another process has added, and ends the sessions of expired ones. */
  async onKeysChanged(): Promise<void> {
    await this.#pieces.sealer.refresh();
    this.#keyExpiry.apply();
  }

  /** Ends all sessions and handles, because the keys that have sealed them are lost. */
  async onKeysLost(): Promise<void> {
    // Until the new keys are read, a request with an id of the old ones would begin its session again.
    await this.#pieces.sealer.refresh();
    this.sessions.releaseAll(false);
  }

  /** Closes every session, connection and process: the parts in the reverse order of their construction. */
  async stop(): Promise<void> {
    const { upstreamEvents, upstreams, transports, keyedCalls, recorder, offers, records, state, tracing } =
      this.#pieces;
    this.#sweeper.stop();
    this.#keyExpiry.close();
    this.sessions.releaseAll(this.keepsState);
    this.parked.close();
    this.groups.releaseWhere(() => true);
    upstreamEvents.close();
    await upstreams.stop();
    await transports[Symbol.asyncDispose]();
    keyedCalls.close();
    recorder.flush();
    await offers.stored.flush();
    await records.flush();
    await state[Symbol.asyncDispose]();
    await tracing?.[Symbol.asyncDispose]();
  }
}

import type { Logger } from 'pino';
import type { AuditTrail } from '../audit/audit-trail.ts';
import { updateViews, type View } from '../catalog/view.ts';
import type { Config } from '../config/config.ts';
import type { IdentityKeys } from '../credentials/identity-keys.ts';
import { KeyExpiry } from '../gateway/clients/key-expiry.ts';
import type { ClientGroups } from '../gateway/clients/client-group.ts';
import type { SeenClients } from '../gateway/clients/seen-clients.ts';
import type { Sessions } from '../gateway/clients/sessions.ts';
import type { ConnectionHolder, Upstreams } from '../gateway/exchange/connection-holder.ts';
import { Gate } from '../gateway/exchange/gate.ts';
import { AuditRecorder } from '../gateway/records/audit-recorder.ts';
import { LocalOwners, type Owners } from '../gateway/exchange/owners.ts';
import { PrincipalShares } from '../gateway/exchange/principal-shares.ts';
import type { ClientTransport } from '../gateway/records/request-recorder.ts';
import type { Front } from '../gateway/front.ts';
import { Sealer } from '../gateway/handles/sealer.ts';
import type { Offers } from '../gateway/lists/offers.ts';
import type { ParkedCalls } from '../gateway/questions/parked-calls.ts';
import { RawObject } from '../json/json.ts';
import { openState, type State } from '../store/open-state.ts';
import type { RateTable } from '../store/rate-table.ts';
import type { Counters } from '../store/shared-counters.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import type { ProcessUsage } from '../upstream/stdio/process-usage.ts';
import { UpstreamSet } from '../upstream/upstream-set.ts';
import { VERSION } from '../version.ts';
import { type ApplyConfig, configApplier } from './reload/apply-config.ts';
import { createClientRequests } from './core/client-requests.ts';
import { createClients } from './core/clients.ts';
import { createConnections } from './core/connections.ts';
import type { CommonParts, CoreParts } from './core/core-parts.ts';
import { registerScrapes } from './core/scrapes.ts';
import { Sweeper } from './core/sweeper.ts';
import { verdictReporter } from './core/verdict-reporter.ts';
import { createUpstreamMessages } from './core/upstream-messages.ts';
import type { UpstreamTransports } from './transports.ts';
import { UpstreamChanges } from './reload/upstream-changes.ts';

/** The gateway without its listeners: everything that serves a client, over any transport. */
export interface Core {
  readonly gateway: Front;
  readonly upstreams: Upstreams;
  readonly offers: Offers;
  /** Decides what clients may use. */
  readonly gate: Gate;
  /** The sessions and client groups in memory. */
  readonly holders: Iterable<ConnectionHolder>;
  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
  /** The reason why the state cannot be written at the moment, as a sentence; undefined while it can be written. */
  readonly stateFailure: string | undefined;
  /** True if the gateway is of use while the state cannot be written. */
  readonly servesWithoutState: boolean;
  /** True if sessions and lists are stored for later processes. */
  readonly keepsState: boolean;
  /** Number of requests without an answer yet. */
  readonly inFlightCount: number;
  /** Number of calls that wait for the answers of their clients. */
  readonly parkedCount: number;
  /** Lets other processes have all sessions and connections from now on. Requests in flight end here. */
  handOver(): void;
  /** Removes cached resources and pages of lists, which are read or made again when they are needed. */
  dropCaches(): void;
  /** The endpoints, by id. */
  readonly views: ReadonlyMap<string, View>;
  /** The clients with what is kept for them; for reports to operators. */
  readonly sessions: Sessions;
  readonly groups: ClientGroups;
  readonly seenClients: SeenClients;
  readonly parked: ParkedCalls;
  /** Restarts and disables upstreams. */
  readonly upstreamChanges: Pick<UpstreamChanges, 'restart' | 'disable' | 'isDisabled'>;
  /** Starts an upstream and reads its lists. Resolves with whether that succeeded; its state has the reason if not. */
  startUpstream(id: string): Promise<boolean>;
  /** Starts the timers and the upstreams that are configured with `start: eager`. */
  start(): void;
  /** Releases sessions, groups and connections that are unused at this time (monotonic ms). A timer calls it too. */
  sweep(nowMs: number): void;
  /** Starts every upstream and reads its lists once. Resolves when each has succeeded or failed, as its state shows. */
  refresh(): Promise<void>;
  /** Loads what another config needs, and changes nothing. Must come before `apply`. @throws if it cannot be loaded. */
  prepare(next: Config): Promise<void>;
  readonly apply: ApplyConfig;
  /**
   * Adds a key that seals later handles. Older ones are valid for `graceMs` more, by default for `sessions.maxAge`; 0 ends all sessions.
   * Resolves with a sentence.
   */
  rotateKeys(graceMs?: number): Promise<string>;
  /** Uses the keys that another process has added, and ends the sessions of expired ones. */
  onKeysChanged(): Promise<void>;
  /** Ends all sessions and handles, because the keys that have sealed them are lost. */
  onKeysLost(): Promise<void>;
  /** Closes every session, connection and process. */
  stop(): Promise<void>;
}

/** The options of {@link startCore}. */
export interface CoreOptions {
  /** Finds the process of a session, a parked call or a task. Default: only this process. */
  readonly owners?: Owners;
  /** The state that outlives requests. Default: that of the state directory. */
  readonly state?: State;
  /** Counts what is bounded per principal, over all processes. Default: this process counts for itself. */
  readonly counters?: Counters;
  /** Counts calls over all processes. Default: this process counts for itself. */
  readonly rateTable?: RateTable | undefined;
  /** Returns the number of processes. Default: one. */
  readonly processes?: (() => number) | undefined;
  /** Keeps sessions in the state directory, if no other process owns it. Default: true. */
  readonly mayOwnState?: boolean;
  /** The connections of clients. Default: `tcp`. */
  readonly clientTransport?: ClientTransport;
  /** Traces requests. The core disposes it when it stops. Default: nothing is traced. */
  readonly tracing?: Tracing | undefined;
  /** The keys of identity tokens, which are those of the state. */
  readonly identity?: IdentityKeys | undefined;
  /** Records what clients do. Default: nothing is recorded. */
  readonly audit?: AuditTrail | undefined;
}

/**
 * Opens the state, constructs the core and starts it.
 *
 * @throws if the state directory cannot be used.
 */
export async function startCore(
  config: Config,
  metrics: Metrics,
  transports: UpstreamTransports,
  log: Logger,
  options: CoreOptions = {},
): Promise<Core> {
  const {
    mayOwnState: mayOwn = true,
    owners = new LocalOwners(),
    counters,
    clientTransport = 'tcp',
    tracing,
    rateTable,
    processes,
  } = options;
  const audit = options.audit === undefined ? undefined : new AuditRecorder(options.audit);
  const state = options.state ?? (await openLocalState(config, metrics, log, mayOwn));
  if (state.notice !== undefined) {
    log[mayOwn ? 'warn' : 'info']({ stateDir: config.stateDir, why: state.notice }, 'sessions are not kept');
  }
  options.identity?.use(state.keys);
  const sealer = await Sealer.open(state.keys);
  const parts = {
    config,
    state,
    sealer,
    metrics,
    transports,
    owners,
    counters,
    rateTable,
    processes,
    clientTransport,
    tracing,
    audit,
    log,
  };
  const core = createCore(parts);
  await core.restore();
  core.start();
  return core;
}

/** Opens the state directory. */
async function openLocalState(config: Config, metrics: Metrics, log: Logger, mayOwn: boolean): Promise<State> {
  return await openState(config.stateDir, {
    mayOwn,
    events: {
      onWriteFailed: () => metrics.countStateWriteFailure(),
      onFailing: (error) => log.error({ err: error, stateDir: config.stateDir }, 'state directory cannot be written'),
      onRecovered: () => log.info({ stateDir: config.stateDir }, 'state directory can be written again'),
      onLimit: (limit) => metrics.countLimit(limit),
      onRefused: ({ message: reason }) => log.warn({ reason }, 'the state directory is not safe'),
    },
  });
}

/**
 * Constructs the core: connections, clients, messages of upstreams, requests of clients. Each part gets the parts that it needs;
 * only callbacks name later ones. No part runs before `start`.
 */
function createCore(parts: CoreParts) {
  const { config, state, sealer, metrics, transports, tracing, audit, log } = parts;
  let current = config;
  const views = new Map<string, View>();
  updateViews(views, config);
  const onLimit: CommonParts['onLimit'] = (limit) => metrics.countLimit(limit);
  const shares = new PrincipalShares({ config, onRefused: (pool) => metrics.countShareRefusal(pool), onLimit });
  const observers = [verdictReporter(metrics, log), ...(audit === undefined ? [] : [audit.onVerdict])];
  const common: CommonParts = {
    ...parts,
    settings: () => current,
    views,
    upstreams: new UpstreamSet(),
    shares,
    gate: new Gate(config.access, observers, shares),
    serverInfo: RawObject.of({ name: 'linkspan', title: 'Linkspan', version: VERSION }),
    onLimit,
  };
  const { upstreams, settings } = common;
  const connections = createConnections(common, {
    siblingsOf: (holder) => clients.groups.siblingsOf(holder),
    onReattached: (link) => messages.notifications.onReattached(link),
    onOpen: (link) => messages.notifications.onOpen(link),
    beforeOpen: (holder, upstream) => requests.listRefresher.beginListing(holder, upstream),
  });
  const clients = createClients(common, connections, {
    onRestored: (session) => messages.notifications.onRestored(session),
    onRightsChange: (session) => messages.notifications.refreshCatalog(session),
  });
  const messages = createUpstreamMessages(common, connections, clients);
  const requests = createClientRequests(common, connections, clients, messages);

  const { offers, records, links } = connections;
  const { sessions, groups, holders, seenClients } = clients;
  const { notifications, resourceCache, upstreamEvents, factory } = messages;
  const { recorder, listRefresher, parked, keyedCalls, connectionOwners, pages, gateway } = requests;
  for (const upstream of config.upstreams) {
    const made = factory.create(upstream);
    upstreams.add(made);
    offers.setEras(made.id, made.eras);
  }
  registerScrapes(common, connections, clients, messages);
  const upstreamChanges = new UpstreamChanges({
    settings,
    upstreams,
    factory,
    offers,
    links,
    holders,
    resourceCache,
    metrics,
    log,
  });
  const sweeper = new Sweeper(common, connections, clients, requests);
  const keyExpiry = new KeyExpiry(sealer, sessions);

  return {
    gateway,
    upstreams,
    offers,
    gate: common.gate,
    holders,
    processUsage: () => transports.processUsage(),
    get stateFailure() {
      return state.sessions.failure;
    },
    servesWithoutState: state.servesWithout,
    keepsState: state.notice === undefined,
    get inFlightCount() {
      return recorder.inFlightCount;
    },
    get parkedCount() {
      return [...parked.waiting()].length;
    },
    handOver: () => {
      sessions.handOver();
      connectionOwners.handOver();
    },
    sweep: (nowMs: number) => sweeper.sweep(nowMs),
    dropCaches: () => {
      resourceCache.clear();
      pages.clear();
    },
    views,
    sessions,
    groups,
    seenClients,
    parked,
    upstreamChanges,
    startUpstream: async (id: string) => {
      const upstream = upstreams.get(id);
      return upstream !== undefined && (await listRefresher.refreshAtStart(upstream));
    },
    refresh: () => listRefresher.refreshAll(),
    prepare: (next: Config) => transports.prepare(next.upstreams),
    apply: configApplier({
      setConfig: (next) => {
        current = next;
      },
      views,
      shares,
      gate: common.gate,
      upstreams,
      upstreamChanges,
      factory,
      transports,
      offers,
      records,
      sessions,
      groups,
      notifications,
      listRefresher,
      metrics,
      log,
    }),
    /** Reads the lists and start records that an earlier process has stored. */
    restore: async () => {
      // Before the lists are read, so that no change is missed.
      await upstreamEvents.sharedOffers.start();
      await offers.restore();
      await records.restore();
    },
    start: () => {
      sweeper.start();
      keyExpiry.apply();
      for (const upstream of upstreams.values()) {
        if (upstream.config.start === 'eager') void listRefresher.refreshAtStart(upstream);
      }
    },
    rotateKeys: async (graceMs = current.sessions.maxAgeMs) => {
      await sealer.rotate(graceMs);
      keyExpiry.apply();
      const untilMs = Date.now() + graceMs;
      log.info({ until: new Date(untilMs).toISOString() }, 'sealing keys rotated');
      if (graceMs === 0)
        return 'A new key seals session ids, cursors and task ids. All older ones are invalid: sessions have ended.';
      return `A new key seals session ids, cursors and task ids. Older ones are valid until ${new Date(untilMs).toISOString()}.`;
    },
    onKeysChanged: async () => {
      await sealer.refresh();
      keyExpiry.apply();
    },
    onKeysLost: async () => {
      // Until the new keys are read, a request with an id of the old ones would begin its session again.
      await sealer.refresh();
      sessions.releaseAll(false);
    },
    /** Stops the parts in the reverse order of their construction. */
    stop: async () => {
      sweeper.stop();
      keyExpiry.close();
      sessions.releaseAll(state.notice === undefined);
      parked.close();
      groups.releaseAll();
      upstreamEvents.close();
      await upstreams.stop();
      await transports[Symbol.asyncDispose]();
      keyedCalls.close();
      recorder.flush();
      await offers.flush();
      await records.flush();
      await state[Symbol.asyncDispose]();
      await tracing?.[Symbol.asyncDispose]();
    },
  };
}

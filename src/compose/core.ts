import type { Logger } from 'pino';
import { commonKey } from '../catalog/offer.ts';
import { updateViews, type View } from '../catalog/view.ts';
import type { Config } from '../config/config.ts';
import { Calls } from '../gateway/calls/calls.ts';
import { TaskCalls } from '../gateway/calls/task-calls.ts';
import { ClientGroups } from '../gateway/clients/client-group.ts';
import { SeenClients } from '../gateway/clients/seen-clients.ts';
import { Sessions } from '../gateway/clients/sessions.ts';
import { HolderLinks } from '../gateway/connections/holder-links.ts';
import { StateLosses } from '../gateway/connections/state-losses.ts';
import type { ConnectionHolder, Upstreams } from '../gateway/exchange/connection-holder.ts';
import { LocalOwners, type Owners } from '../gateway/exchange/owners.ts';
import { type ClientTransport, RequestRecorder } from '../gateway/exchange/request-recorder.ts';
import { ListAnswers } from '../gateway/forward/list-answers.ts';
import { PageCache } from '../gateway/forward/page-cache.ts';
import { ResourceCache } from '../gateway/forward/resource-cache.ts';
import { ResultTranslator } from '../gateway/forward/result-translator.ts';
import { Sender } from '../gateway/forward/sender.ts';
import type { Front } from '../gateway/front.ts';
import { Gateway } from '../gateway/gateway.ts';
import { Sealer } from '../gateway/handles/sealer.ts';
import { TaskIds } from '../gateway/handles/task-ids.ts';
import { TaskMarks } from '../gateway/handles/task-marks.ts';
import { inSlices } from '../gateway/lists/in-slices.ts';
import { ListAnnouncer } from '../gateway/lists/list-announcer.ts';
import { ListRefresher } from '../gateway/lists/list-refresher.ts';
import { Offers } from '../gateway/lists/offers.ts';
import { StartRecords } from '../gateway/lists/start-records.ts';
import { ModernRequests } from '../gateway/modern/modern-requests.ts';
import { NotificationRouter } from '../gateway/notification-router.ts';
import { ClientTasks } from '../gateway/questions/client-tasks.ts';
import { QuestionPolicy } from '../gateway/questions/question-policy.ts';
import { ParkedCalls } from '../gateway/questions/parked-calls.ts';
import { ServerRequests } from '../gateway/questions/server-requests.ts';
import { UrlElicitations } from '../gateway/questions/url-elicitations.ts';
import { TaskDriver } from '../gateway/tasks/task-driver.ts';
import { Tasks } from '../gateway/tasks/tasks.ts';
import { UpgradedTasks } from '../gateway/tasks/upgraded-tasks.ts';
import { UpstreamEventHandler } from '../gateway/upstream-event-handler.ts';
import { RawObject } from '../json/json.ts';
import type { LimitName } from '../limits.ts';
import { ERAS } from '../protocol/revisions.ts';
import { openState, type State } from '../store/open-state.ts';
import { requestLogBeside } from '../telemetry/log.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import type { ProcessUsage } from '../upstream/stdio/process-usage.ts';
import { UpstreamSet } from '../upstream/upstream-set.ts';
import { VERSION } from '../version.ts';
import { type ApplyConfig, configApplier } from './apply-config.ts';
import { processReport, ProcessReportTimes } from './process-report.ts';
import type { UpstreamTransports } from './transports.ts';
import { fullUpstreamStatuses, loadOf } from './upstream-status.ts';
import { UpstreamChanges } from './upstream-changes.ts';
import { UpstreamFactory } from './upstream-factory.ts';

/** The interval at which unused sessions, groups and connections are released. */
const SWEEP_MS = 5_000;

/** The gateway without its listeners: everything that serves a client, over any transport. */
export interface Core {
  readonly gateway: Front;
  readonly upstreams: Upstreams;
  readonly offers: Offers;
  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
  /** The reason why the state cannot be written at the moment, as a sentence; undefined while it can be written. */
  readonly stateFailure: string | undefined;
  /** True if sessions and lists are stored for later processes. */
  readonly keepsState: boolean;
  /** Number of requests without an answer yet. */
  readonly inFlightCount: number;
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
  readonly apply: ApplyConfig;
  /** Closes every session, connection and process. */
  stop(): Promise<void>;
}

/** The options of {@link startCore}. */
export interface CoreOptions {
  /** Finds the process of a session, a parked call or a task. Default: only this process. */
  readonly owners?: Owners;
  /** Keeps sessions in the state directory, if no other process owns it. Default: true. */
  readonly mayOwnState?: boolean;
  /** The connections of clients. Default: `tcp`. */
  readonly clientTransport?: ClientTransport;
  /** Traces requests. The core disposes it when it stops. Default: nothing is traced. */
  readonly tracing?: Tracing | undefined;
}

/** The parts that a core is constructed from. */
interface CoreParts {
  readonly config: Config;
  readonly state: State;
  readonly sealer: Sealer;
  readonly metrics: Metrics;
  readonly transports: UpstreamTransports;
  readonly owners: Owners;
  readonly clientTransport: ClientTransport;
  readonly tracing: Tracing | undefined;
  readonly log: Logger;
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
  const { mayOwnState: mayOwn = true, owners = new LocalOwners(), clientTransport = 'tcp', tracing } = options;
  const state = await openState(config.stateDir, {
    mayOwn,
    events: {
      writeFailed: () => metrics.stateWriteFailed(),
      failing: (error) => log.error({ err: error, stateDir: config.stateDir }, 'state directory cannot be written'),
      recovered: () => log.info({ stateDir: config.stateDir }, 'state directory can be written again'),
      limitReached: (limit) => metrics.limitReached(limit),
    },
  });
  if (state.notice !== undefined) {
    log[mayOwn ? 'warn' : 'info']({ stateDir: config.stateDir, why: state.notice }, 'sessions are not kept');
  }
  const sealer = await Sealer.open(state.keys);
  const core = createCore({ config, state, sealer, metrics, transports, owners, clientTransport, tracing, log });
  await core.restore();
  core.start();
  return core;
}

/** Constructs the core, each part after the parts that it needs. No part runs before `start`. */
function createCore(parts: CoreParts) {
  const { config, state, sealer, metrics, transports, owners, clientTransport, tracing, log } = parts;
  /** The running config. Parts read the settings that a reload may change through functions and getters. */
  let current = config;
  const onLimit = (limit: LimitName) => metrics.limitReached(limit);
  const serverInfo = RawObject.of({ name: 'linkspan', title: 'Linkspan', version: VERSION });
  /** The views of the running config. */
  const views = new Map<string, View>();
  updateViews(views, config);
  const upstreams: Upstreams = new UpstreamSet();

  // Lists and connections.
  const audienceOf = (id: string, principal: string) => upstreams.get(id)?.audienceOf(principal) ?? '';
  const offers = new Offers({ config, views, audienceOf, store: state.offers, log, metrics });
  const records = new StartRecords(offers.upstreamKeys(), state.offers, log);
  const stateLosses = new StateLosses({ metrics, log });
  // Sibling groups share the notifications of their connections. `groups` is constructed below.
  const siblingsOf = (holder: ConnectionHolder) => groups.siblingsOf(holder);
  const beforeOpen = (holder: ConnectionHolder, upstream: string) => listRefresher.beginListing(holder, upstream);
  const links = new HolderLinks({ upstreams, stateLosses, log, siblingsOf, beforeOpen, onLimit });

  // Connection holders: sessions of legacy clients, groups of modern clients.
  const sessions = new Sessions({
    sealer,
    owners,
    store: state.sessions,
    offers,
    limits: {
      get idleMs() {
        return current.sessions.idleMs;
      },
      get maxAgeMs() {
        return current.sessions.maxAgeMs;
      },
      get perPrincipal() {
        return current.limits.sessionsPerPrincipal;
      },
    },
    log,
    gauge: metrics.sessions,
    onRestored: (session, record) => {
      const known = (record?.upstreams ?? []).filter((id) => upstreams.has(id));
      stateLosses.onRestored(session, known);
      links.onRestored(session);
    },
    onRelease: (session) => links.releaseHolder(session),
  });
  const seenClients = new SeenClients(onLimit);
  const groups = new ClientGroups({
    defaultCatalog: (view) => offers.catalog(view, commonKey('modern')),
    loadCatalog: (holder) => offers.loadCatalog(holder),
    onRelease: (group) => links.releaseHolder(group),
    get idleMs() {
      return current.sessions.idleMs;
    },
    get perPrincipal() {
      return current.limits.sessionsPerPrincipal;
    },
  });
  const holders: Iterable<ConnectionHolder> = {
    *[Symbol.iterator]() {
      yield* sessions;
      yield* groups;
    },
  };

  // Messages of upstreams.
  const taskIds = new TaskIds(sealer, state.tasks, owners.name);
  const marks = new TaskMarks(taskIds);
  const clientTasks = new ClientTasks();
  const urlElicitations = new UrlElicitations();
  const resourceCache = new ResourceCache(onLimit);
  const announcer = new ListAnnouncer();
  const notifications = new NotificationRouter({
    upstreams,
    holders,
    siblingsOf,
    offers,
    announcer,
    urlElicitations,
    resourceCache,
    marks,
    log,
    onDropped: (reason) => metrics.dropped(reason),
    onMerged: () => metrics.notificationMerged(),
    onLimit,
  });
  const questionPolicy = new QuestionPolicy({
    featuresOf: (id) => upstreams.find(id)?.config.clientFeatures,
    metrics,
    log,
  });
  const serverRequests = new ServerRequests(marks, clientTasks, questionPolicy);
  const upstreamEvents = new UpstreamEventHandler({ offers, links, notifications, serverRequests, metrics });
  const factory = new UpstreamFactory({
    limits: () => current.limits,
    transports,
    events: upstreamEvents,
    clientInfo: serverInfo,
    metrics,
    log,
    tracing,
  });

  // Requests of clients.
  const recorder = new RequestRecorder({
    metrics,
    log,
    requestLog: requestLogBeside(log),
    transport: clientTransport,
    tracing,
    clientOf: (caller) => seenClients.find(caller),
  });
  const translator = new ResultTranslator(serverInfo, questionPolicy);
  const listRefresher = new ListRefresher({
    views,
    upstreams,
    offers,
    records,
    get waitMs() {
      return current.lists.waitMs;
    },
    refreshCatalog: (holder) => notifications.refreshCatalog(holder),
  });
  const lists = new ListAnswers(sealer, translator, listRefresher, announcer, new PageCache(onLimit));
  const sender = new Sender(metrics, stateLosses);
  const driver = new TaskDriver(sender, questionPolicy);
  const upgradedTasks = new UpgradedTasks({
    sender,
    translator,
    get perPrincipal() {
      return current.limits.parkedPerPrincipal;
    },
  });
  const taskCalls = new TaskCalls({ sender, translator, ids: taskIds, driver, upgradedTasks });
  const calls = new Calls({
    questionPolicy,
    upstreams,
    links,
    listRefresher,
    translator,
    resourceCache,
    sender,
    taskCalls,
  });
  const tasks = new Tasks({
    questionPolicy,
    upstreams,
    links,
    sender,
    translator,
    ids: taskIds,
    owners,
    upgradedTasks,
  });
  const parked = new ParkedCalls({
    sealer,
    process: owners.name,
    gauge: metrics.parked,
    get ttlMs() {
      return current.sessions.parkMs;
    },
    get perPrincipal() {
      return current.limits.parkedPerPrincipal;
    },
    get perUpstream() {
      return current.limits.parkedPerUpstream;
    },
  });
  const modernRequests = new ModernRequests({
    questionPolicy,
    groups,
    upstreams,
    calls,
    tasks,
    taskIds,
    parked,
    listRefresher,
    links,
    lists,
    translator,
    sealer,
    urlElicitations,
    get inFlightPerSession() {
      return current.limits.inFlightPerSession;
    },
    owners,
    recorder,
  });
  const gateway = new Gateway({
    views,
    upstreams,
    sessions,
    seenClients,
    listRefresher,
    links,
    lists,
    calls,
    tasks,
    clientTasks,
    modernRequests,
    recorder,
    log,
    serverInfo,
    get inFlightPerSession() {
      return current.limits.inFlightPerSession;
    },
  });

  for (const upstream of config.upstreams) {
    const made = factory.create(upstream);
    upstreams.add(made);
    offers.setEras(made.id, made.eras);
  }
  metrics.onScrape('readCacheBytes', () => resourceCache.bytes);
  metrics.beforeScrape(() =>
    inSlices(views.keys(), (view) => {
      for (const era of ERAS) metrics.catalogTools(view, era, offers.toolListSize(view, era));
    }),
  );
  metrics.beforeScrape(async () => {
    const hasProcesses = [...upstreams.values()].some(({ isProcess, connections }) => isProcess && connections > 0);
    const usage = hasProcesses ? await transports.processUsage() : new Map<string, ProcessUsage>();
    metrics.upstreamLoads([...upstreams.values()].map((upstream) => loadOf(upstream, usage.get(upstream.id))));
  });

  const upstreamChanges = new UpstreamChanges({
    config: () => current,
    upstreams,
    factory,
    offers,
    links,
    holders,
    resourceCache,
    metrics,
    log,
  });

  const processUsage = () => transports.processUsage();
  const sweep = (nowMs: number) => {
    sessions.sweep(nowMs);
    groups.sweep(nowMs);
    for (const upstream of upstreams.values()) upstream.closeIdleLinks(nowMs);
  };
  const reportTimes = new ProcessReportTimes();
  const reportProcesses = async () => {
    const programs = [...upstreams.values()].filter(({ isProcess }) => isProcess);
    if (!reportTimes.isDue(new Map(programs.map(({ id, connections }) => [id, connections])))) return;
    log.info(processReport(await fullUpstreamStatuses({ upstreams, offers, processUsage })), 'processes of upstreams');
  };
  let sweeping: NodeJS.Timeout | undefined;

  return {
    gateway,
    upstreams,
    offers,
    processUsage,
    get stateFailure() {
      return state.sessions.failure;
    },
    keepsState: state.notice === undefined,
    get inFlightCount() {
      return recorder.inFlightCount;
    },
    sweep,
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
    apply: configApplier({
      setConfig: (next) => {
        current = next;
      },
      views,
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
      await offers.restore();
      await records.restore();
    },
    start: () => {
      sweeping = setInterval(() => {
        sweep(performance.now());
        void reportProcesses();
      }, SWEEP_MS).unref();
      for (const upstream of upstreams.values()) {
        if (upstream.config.start === 'eager') void listRefresher.refreshAtStart(upstream);
      }
    },
    /** Stops the parts in the reverse order of their construction. */
    stop: async () => {
      clearInterval(sweeping);
      sessions.releaseAll();
      parked.close();
      groups.releaseAll();
      upstreamEvents.close();
      await upstreams.stop();
      await transports[Symbol.asyncDispose]();
      recorder.flush();
      await offers.flush();
      await records.flush();
      await state[Symbol.asyncDispose]();
      await tracing?.[Symbol.asyncDispose]();
    },
  };
}

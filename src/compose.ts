import type { Logger } from 'pino';
import { createAuthenticator } from './auth/authenticate.ts';
import { viewsOf } from './catalog/view.ts';
import type { Config, UpstreamConfig } from './config/config.ts';
import { openFileLimit } from './connection-limit.ts';
import { createApp } from './downstream/http/app.ts';
import { ClientGroups } from './gateway/clients/client-group.ts';
import { ResultTranslator } from './gateway/forward/result-translator.ts';
import { ServerRequests } from './gateway/questions/server-requests.ts';
import { ClientTasks } from './gateway/questions/client-tasks.ts';
import { UrlElicitations } from './gateway/questions/url-elicitations.ts';
import { Gateway } from './gateway/gateway.ts';
import { HolderLinks } from './gateway/connections/holder-links.ts';
import { StateLosses } from './gateway/connections/state-losses.ts';
import { PageCache } from './gateway/forward/page-cache.ts';
import { ListAnswers } from './gateway/forward/list-answers.ts';
import { NotificationRouter } from './gateway/notification-router.ts';
import { Offers } from './gateway/lists/offers.ts';
import { ResourceCache } from './gateway/forward/resource-cache.ts';
import { ChangeGatherer } from './gateway/lists/change-gatherer.ts';
import { inSlices } from './gateway/lists/in-slices.ts';
import { ListAnnouncer } from './gateway/lists/list-announcer.ts';
import { StartRecords } from './gateway/lists/start-records.ts';
import { ListRefresher } from './gateway/lists/list-refresher.ts';
import { Sealer } from './gateway/handles/sealer.ts';
import { TaskIds } from './gateway/handles/task-ids.ts';
import { TaskMarks } from './gateway/handles/task-marks.ts';
import type { Exchange } from './gateway/exchange/exchange.ts';
import { LocalCallOwners, type CallOwners } from './gateway/questions/call-owners.ts';
import { ParkedCalls } from './gateway/questions/parked-calls.ts';
import type { ConnectionHolder } from './gateway/exchange/connection-holder.ts';
import { Session } from './gateway/clients/session.ts';
import { Sessions } from './gateway/clients/sessions.ts';
import { createOperatorApp } from './operator/app.ts';
import type { UpstreamStatus } from './operator/status.ts';
import { RawObject } from './json/json.ts';
import type { LimitName } from './limits.ts';
import { Listener } from './listener.ts';
import { ERAS } from './protocol/revisions.ts';
import { openState } from './store/open-state.ts';
import { requestLogBeside } from './telemetry/log.ts';
import { createMetrics, type Metrics } from './telemetry/metrics.ts';
import { httpTransport } from './upstream/http/http.ts';
import { modernHttpTransport } from './upstream/http/http-modern.ts';
import { upstreamWire } from './upstream/http/http-wire.ts';
import { processQuota, remoteQuota } from './upstream/quotas.ts';
import { NpxCommands } from './upstream/stdio/npx-command.ts';
import { type ProcessUsage, ProcessUsages } from './upstream/stdio/process-usage.ts';
import { ProcessGuard } from './upstream/stdio/process-guard.ts';
import { sseTransport } from './upstream/http/sse.ts';
import { stdioTransport } from './upstream/stdio/stdio.ts';
import type { TransportOption } from './upstream/rpc/transport.ts';
import { Upstream, type UpstreamEvents } from './upstream/upstream.ts';
import type { Wire } from './http1/wire.ts';
import { explanation, fullStatus, isUp, statusOf } from './upstream-status.ts';
import { VERSION } from './version.ts';

const SWEEP_MS = 5_000;

/** Requests under way are waited for this long when we are told to stop. */
const DRAIN_MS = 60_000;
const DRAIN_POLL_MS = 50;

/** Ports that are tried for the operator where none was configured. */
const OPERATOR_PORTS = 100;

/** The gateway without its doors: everything that serves a client, however it comes. */
export interface Core {
  readonly gateway: Gateway;
  /** Whether sessions and lists outlive this process. */
  readonly keepsState: boolean;
  ready(): { readonly ready: boolean; readonly reasons: readonly string[] };
  status(): readonly UpstreamStatus[];
  /** The same with the processes of each upstream and their memory, which takes a moment. */
  fullStatus(): Promise<readonly UpstreamStatus[]>;
  /** Releases what is unused at this time (monotonic ms). Runs by itself every few seconds. */
  sweep(nowMs: number): void;
  /** Starts every upstream and asks for its lists, once. Resolves when each has answered or failed; `status` says which. */
  refresh(): Promise<void>;
  /** Resolves when no request is under way, or after the limit. */
  drained(limitMs: number): Promise<void>;
  /** Ends every session, connection and process. */
  stop(): Promise<void>;
}

/** How upstreams are reached, and what that takes. */
export interface UpstreamTransports extends AsyncDisposable {
  /** Ways to one upstream, the preferred first. */
  transportsTo(upstream: UpstreamConfig): readonly TransportOption[];
  /** What the processes of stdio upstreams take at the moment, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
}

/** Over stdio and HTTP. Disposing ends whatever the transports share. */
export function upstreamTransports(config: Config, metrics: Metrics, log: Logger): UpstreamTransports {
  const guard = new ProcessGuard(log);
  const npx = new NpxCommands(config.stateDir, guard, log);
  const usages = new ProcessUsages(guard.tagged, (limit) => metrics.limitReached(limit));
  const shared: Wire[] = [];
  const onPause = () => metrics.limitReached('notificationsPerSecond');
  return {
    transportsTo: ({ id, target, era, timeouts }) => {
      const { messageBytes } = config.limits;
      if (target.kind === 'stdio') {
        const onNonProtocolOutput = () => metrics.stdioJunk(id);
        const start = stdioTransport(target, {
          upstream: id,
          messageBytes,
          log,
          guard,
          npx,
          onNonProtocolOutput,
          onPause,
        });
        return [{ era: era === 'auto' ? 'either' : era, isProcess: true, tellsWhichCall: false, start }];
      }
      const wire = upstreamWire(target, timeouts);
      shared.push(wire);
      const options = { upstream: id, timeouts, messageBytes, log, wire, userAgent: `linkspan/${VERSION}`, onPause };
      const isProcess = false;
      const startSse = sseTransport(target, options);
      const sse: TransportOption = { era: 'legacy', isProcess, tellsWhichCall: false, start: startSse };
      if (target.kind === 'sse') return [sse];
      const startModern = modernHttpTransport(target, options);
      const modern: TransportOption = { era: 'modern', isProcess, tellsWhichCall: true, start: startModern };
      const startHttp = httpTransport(target, options);
      const legacy: TransportOption = { era: 'legacy', isProcess, tellsWhichCall: true, start: startHttp };
      return [...(era === 'legacy' ? [] : [modern]), ...(era === 'modern' ? [] : [legacy, sse])];
    },
    processUsage: () => usages.byUpstream(),
    [Symbol.asyncDispose]: async () => {
      await Promise.all(shared.map((wire) => wire.destroy()));
      await guard[Symbol.asyncDispose]();
    },
  };
}

export interface CoreOptions {
  readonly callOwners?: CallOwners;
  /** Whether sessions are kept in the state directory, if no other process does so. The default is true. */
  readonly mayOwnState?: boolean;
}

/** @throws when the state directory cannot be used. */
export async function composeCore(
  config: Config,
  metrics: Metrics,
  upstreamTransports: UpstreamTransports,
  log: Logger,
  options: CoreOptions = {},
): Promise<Core> {
  const callOwners = options.callOwners ?? new LocalCallOwners();
  const mayOwn = options.mayOwnState ?? true;
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
  const views = viewsOf(config);
  const offers = new Offers(config, views, state.offers, log, metrics);
  await offers.restore();
  const records = new StartRecords(offers.upstreamKeys(), state.offers, log);
  await records.restore();

  const upstreams = new Map<string, Upstream<Exchange, ConnectionHolder>>();
  const stateLosses = new StateLosses({
    metrics,
    log,
    onFirstUse: (holder, upstream) => {
      if (!(holder instanceof Session)) return;
      sessions.save(holder, { kind: 'use', upstream }).catch((thrown: unknown) => {
        log.debug({ err: thrown, upstream }, 'a restart will not report the loss of state');
      });
    },
  });
  const links = new HolderLinks(upstreams, stateLosses, log);
  const urlElicitations = new UrlElicitations();
  const onLimit = (limit: LimitName) => metrics.limitReached(limit);
  const resourceCache = new ResourceCache(onLimit);
  metrics.onScrape('readCacheBytes', () => resourceCache.bytes);
  const sessions = new Sessions({
    sealer,
    store: state.sessions,
    offers,
    limits: { ...config.sessions, perPrincipal: config.limits.sessionsPerPrincipal },
    gauge: metrics.sessions,
    onRestored: (session, record) => {
      stateLosses.onRestored(
        session,
        (record?.upstreams ?? []).filter((id) => upstreams.has(id)),
      );
      links.onRestored(session);
    },
    onRelease: (session) => links.releaseHolder(session),
  });
  const onDropped = (reason: string) => metrics.dropped(reason);
  const groups = new ClientGroups({
    defaultCatalog: (view) => offers.catalog(view, 'modern', ''),
    loadCatalog: (holder) => offers.loadCatalog(holder),
    onRelease: (group) => links.releaseHolder(group),
    idleMs: config.sessions.idleMs,
    perPrincipal: config.limits.sessionsPerPrincipal,
  });
  const membership = callOwners.join({
    modern: (request, caller, sink) => gateway.modern(request, caller, sink, undefined),
  });
  const parked = new ParkedCalls({
    sealer,
    ownerName: membership.name,
    gauge: metrics.parked,
    ttlMs: config.sessions.parkMs,
    perPrincipal: config.limits.parkedPerPrincipal,
    perUpstream: config.limits.parkedPerUpstream,
  });
  const holders = {
    *[Symbol.iterator]() {
      yield* sessions;
      yield* groups;
    },
  };
  const taskIds = new TaskIds(sealer);
  const marks = new TaskMarks(taskIds);
  const clientTasks = new ClientTasks();
  const serverRequests = new ServerRequests(marks, clientTasks);
  const announcer = new ListAnnouncer();
  const notifications = new NotificationRouter({
    upstreams,
    holders,
    offers,
    announcer,
    links,
    urlElicitations,
    resourceCache,
    marks,
    log,
    onDropped,
  });
  const listRefresher = new ListRefresher({
    views,
    upstreams,
    offers,
    records,
    waitMs: config.lists.waitMs,
    refreshCatalog: (holder) => notifications.refreshCatalog(holder),
  });

  metrics.beforeScrape(() =>
    inSlices(views.keys(), (view) => {
      for (const era of ERAS) metrics.catalogTools(view, era, offers.toolCount(view, era));
    }),
  );
  const changes = new ChangeGatherer((changed) => {
    for (const [upstream, eras] of changed) for (const era of eras) offers.reportProblems(upstream, era);
    void notifications.onListsChanged(changed.keys());
  });
  const events: UpstreamEvents<Exchange, ConnectionHolder> = {
    onNotification: (link, notification, about) => notifications.onNotification(link, notification, about),
    onServerRequest: (link, ask) => serverRequests.relay(link, ask),
    onLinkClosed: (link, reason) => {
      links.onLinkClosed(link, reason);
      notifications.onLinkClosed(link);
      if (reason === 'crash' || reason === 'forgotten') metrics.upstreamRestarted(link.upstream);
    },
    onStateChange: (upstream, after) => metrics.upstreamState(upstream, after.phase),
    onEras: (upstream, eras) => {
      metrics.upstreamEras(upstream, eras);
      if (!offers.setEras(upstream, eras)) return;
      for (const era of ERAS) changes.add(upstream, era, true);
    },
    onLists: (upstream, era, capabilityKey, offer) => {
      const isStart = offers.ageMs(upstream, era, capabilityKey) === undefined;
      const isChanged = offers.update(upstream, era, capabilityKey, offer);
      // Those of lists from disk are not in the log of this process.
      if (isChanged || isStart) changes.add(upstream, era, isStart);
      if (isChanged && capabilityKey === '') notifications.refreshVariants(upstream, era);
    },
  };

  const processes = processQuota(config.limits.processes, metrics.processes);
  const remote = remoteQuota(openFileLimit() ?? Infinity);
  const clientInfo = RawObject.of({ name: 'linkspan', title: 'Linkspan', version: VERSION });
  for (const upstream of config.upstreams) {
    const transports = upstreamTransports.transportsTo(upstream);
    const quota = upstream.target.kind === 'stdio' ? processes : remote;
    const parts = { config: upstream, transports, quota, clientInfo, log, onLimit };
    metrics.upstreamState(upstream.id, 'configured');
    const made = new Upstream(parts, events);
    upstreams.set(upstream.id, made);
    metrics.upstreamEras(upstream.id, made.eras);
    offers.setEras(upstream.id, made.eras);
  }

  const requestLog = requestLogBeside(log);
  const translator = new ResultTranslator(clientInfo);
  const gateway = new Gateway({
    views,
    upstreams,
    sessions,
    listRefresher,
    links,
    lists: new ListAnswers(sealer, translator, listRefresher, announcer, new PageCache(onLimit)),
    stateLosses,
    translator,
    groups,
    parked,
    urlElicitations,
    resourceCache,
    sealer,
    taskIds,
    clientTasks,
    metrics,
    log,
    requestLog,
    serverInfo: clientInfo,
    inFlightPerSession: config.limits.inFlightPerSession,
    callOwners,
    ownerName: membership.name,
    tasksPerPrincipal: config.limits.parkedPerPrincipal,
  });

  const sweep = (nowMs: number) => {
    sessions.sweep(nowMs);
    groups.sweep(nowMs);
    for (const upstream of upstreams.values()) upstream.reap(nowMs);
  };
  const sweeping = setInterval(() => sweep(performance.now()), SWEEP_MS);
  sweeping.unref();

  for (const upstream of upstreams.values()) {
    if (upstream.config.start === 'eager') listRefresher.start(upstream);
  }

  return {
    gateway,
    keepsState: state.notice === undefined,
    ready: () => readiness(upstreams.values(), state.sessions.failure),
    sweep,
    status: () => [...upstreams.values()].map((upstream) => statusOf(upstream, offers)),
    fullStatus: async () => fullStatus(upstreams.values(), offers, await upstreamTransports.processUsage()),
    refresh: () => listRefresher.refreshAll(),
    drained: async (limitMs) => {
      const untilMs = performance.now() + limitMs;
      while (gateway.inFlightCount > 0 && performance.now() < untilMs) {
        await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
      }
    },
    stop: async () => {
      clearInterval(sweeping);
      sessions.releaseAll();
      membership.leave();
      parked.close();
      groups.releaseAll();
      changes.close();
      await Promise.all([...upstreams.values()].map((upstream) => upstream.stop()));
      await upstreamTransports[Symbol.asyncDispose]();
      requestLog?.flush();
      await offers.flush();
      await records.flush();
      await state[Symbol.asyncDispose]();
    },
  };
}

/** The state must be written, and a required upstream must have been reached; the others may come and go. */
function readiness(
  upstreams: Iterable<Upstream<Exchange, ConnectionHolder>>,
  stateFailure: string | undefined,
): { readonly ready: boolean; readonly reasons: readonly string[] } {
  const reasons: string[] = stateFailure === undefined ? [] : [stateFailure];
  for (const { id, config, lifecycle } of upstreams) {
    if (!config.required || isUp(lifecycle)) continue;
    const why = explanation(lifecycle);
    reasons.push(`required upstream "${id}" is ${lifecycle.phase}${why === undefined ? '' : `: ${why}`}`);
  }
  return { ready: reasons.length === 0, reasons };
}

/** A gateway with its doors open. */
export interface Running {
  /** Of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** Stops taking requests, lets those under way finish, and leaves nothing behind. */
  stop(): Promise<void>;
}

export interface ComposeOptions {
  /** Fetches the lists of all upstreams before it listens, at most until this settles. */
  readonly warmUntil?: Promise<unknown>;
}

/** @throws when an address cannot be listened on, or the state directory not be used. */
export async function compose(config: Config, log: Logger, { warmUntil }: ComposeOptions = {}): Promise<Running> {
  const metrics = createMetrics(VERSION);
  const core = await composeCore(config, metrics, upstreamTransports(config, metrics, log), log);
  let isDraining = false;
  const startedAtMs = Date.now();
  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const door = await Listener.open(config.listen, 'gateway.listen or --listen', (origin) => {
      const authenticator = createAuthenticator(config.auth, { log });
      return createApp({ front: core.gateway, authenticator, config, origin, log, metrics });
    });
    const operatorDoor =
      config.operator === undefined
        ? undefined
        : await Listener.open(
            config.operator,
            'gateway.operator or --operator',
            () => ({
              app: createOperatorApp({
                metrics,
                version: VERSION,
                allowedHosts: config.allowedHosts,
                startedAtMs,
                ready: () => (isDraining ? { ready: false, reasons: ['shutting down'] } : core.ready()),
                upstreams: () => core.fullStatus(),
              }),
              drain: () => undefined,
            }),
            config.operatorMayMove ? OPERATOR_PORTS : 1,
          );
    return {
      url: `${door.origin}/mcp`,
      operatorUrl: operatorDoor?.origin,
      stop: async () => {
        isDraining = true;
        door.drain();
        await core.drained(DRAIN_MS);
        await core.stop();
        await Promise.all([door.close(), operatorDoor?.close()]);
      },
    };
  } catch (thrown) {
    await core.stop();
    throw thrown;
  }
}

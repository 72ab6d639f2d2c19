import type { Logger } from 'pino';
import { createAuthenticator } from './auth/authenticate.ts';
import { viewsOf } from './catalog/view.ts';
import type { Config, UpstreamConfig } from './config/config.ts';
import { createApp } from './downstream/app.ts';
import { Affinities } from './gateway/affinity.ts';
import { Answers } from './gateway/answers.ts';
import { Asks } from './gateway/asks.ts';
import { ClientTasks } from './gateway/client-tasks.ts';
import { Completions } from './gateway/completions.ts';
import { Gateway } from './gateway/gateway.ts';
import { Links } from './gateway/links.ts';
import { Lists } from './gateway/lists.ts';
import { News } from './gateway/news.ts';
import { Offers } from './gateway/offers.ts';
import { Reads } from './gateway/reads.ts';
import { Scouts } from './gateway/scouts.ts';
import { Sealer } from './gateway/seal.ts';
import { TaskIds } from './gateway/task-ids.ts';
import { TaskMarks } from './gateway/task-marks.ts';
import type { Exchange } from './gateway/exchange.ts';
import { LocalOwners, type Owners } from './gateway/owners.ts';
import { Parked } from './gateway/parked.ts';
import type { Party } from './gateway/party.ts';
import { Sessions } from './gateway/sessions.ts';
import { createOperatorApp } from './operator/app.ts';
import type { UpstreamStatus } from './operator/status.ts';
import { RawObject } from './protocol/json.ts';
import { Listener } from './listener.ts';
import { createMemorySessionStore } from './store/memory.ts';
import { requestLogBeside } from './telemetry/log.ts';
import { createMetrics, type Metrics } from './telemetry/metrics.ts';
import { httpTransport } from './upstream/http.ts';
import { modernHttpTransport } from './upstream/http-modern.ts';
import { upstreamWire } from './upstream/http-wire.ts';
import type { Lifecycle } from './upstream/lifecycle.ts';
import { Budget } from './upstream/budget.ts';
import { ProcessGuard } from './upstream/process-guard.ts';
import { sseTransport } from './upstream/sse.ts';
import { stdioTransport } from './upstream/stdio.ts';
import type { Way } from './upstream/transport.ts';
import { Upstream, type UpstreamEvents } from './upstream/upstream.ts';
import type { Wire } from './upstream/wire.ts';
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
  ready(): { readonly ready: boolean; readonly reasons: readonly string[] };
  status(): readonly UpstreamStatus[];
  /** Starts every upstream and asks for its lists, once. Resolves when each has answered or failed; `status` says which. */
  refresh(): Promise<void>;
  /** Resolves when no request is under way, or after the limit. */
  settled(limitMs: number): Promise<void>;
  /** Ends every session, connection and process. */
  stop(): Promise<void>;
}

/** How upstreams are reached, and what that takes. */
export interface Reach extends AsyncDisposable {
  /** Ways to one upstream, the preferred first. */
  waysTo(upstream: UpstreamConfig): readonly Way[];
}

/** Over stdio and HTTP. Disposing ends whatever the transports share. */
export function wires(config: Config, metrics: Metrics, log: Logger): Reach {
  const guard = new ProcessGuard(log);
  const shared: Wire[] = [];
  return {
    waysTo: ({ id, target, era, timeouts }) => {
      const { messageBytes } = config.limits;
      if (target.kind === 'stdio') {
        const onJunk = () => metrics.stdioJunk(id);
        const start = stdioTransport(target, { upstream: id, messageBytes, log, guard, onJunk });
        return [{ speaks: era === 'auto' ? 'either' : era, start }];
      }
      const wire = upstreamWire(target, timeouts);
      shared.push(wire);
      const options = { upstream: id, timeouts, messageBytes, log, wire, userAgent: `linkspan/${VERSION}` };
      const sse: Way = { speaks: 'legacy', start: sseTransport(target, options) };
      if (target.kind === 'sse') return [sse];
      const modern: Way = { speaks: 'modern', start: modernHttpTransport(target, options) };
      const legacy: Way = { speaks: 'legacy', start: httpTransport(target, options) };
      return [...(era === 'legacy' ? [] : [modern]), ...(era === 'modern' ? [] : [legacy, sse])];
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(shared.map((wire) => wire.destroy()));
      await guard[Symbol.asyncDispose]();
    },
  };
}

/** @throws when the state directory cannot be used. */
export async function composeCore(
  config: Config,
  metrics: Metrics,
  reach: Reach,
  log: Logger,
  owners: Owners = new LocalOwners(),
): Promise<Core> {
  const sealer = await Sealer.open(config.stateDir);
  const store = await createMemorySessionStore(config.stateDir, config.sessions.maxAgeMs);
  const views = viewsOf(config);
  const offers = new Offers(config, views, log);
  await offers.restore();

  const upstreams = new Map<string, Upstream<Exchange, Party>>();
  const links = new Links(upstreams, log);
  const completions = new Completions();
  const reads = new Reads();
  const sessions = new Sessions({
    sealer,
    store,
    offers,
    limits: { ...config.sessions, perPrincipal: config.limits.sessionsPerPrincipal },
    level: metrics.sessions,
    woken: (session) => links.woken(session),
    leaving: (session) => links.leave(session),
  });
  const dropped = (reason: string) => metrics.dropped(reason);
  const affinities = new Affinities({
    plain: (view) => offers.catalog(view, ''),
    catalogFor: (party) => offers.catalogOnceRead(party),
    leaving: (affinity) => links.leave(affinity),
    idleMs: config.sessions.idleMs,
    perPrincipal: config.limits.sessionsPerPrincipal,
  });
  const seat = owners.join({
    modern: (request, caller, outlet) => gateway.modern(request, caller, outlet, undefined),
  });
  const parked = new Parked({
    sealer,
    ownName: seat.name,
    level: metrics.parked,
    ttlMs: config.sessions.parkMs,
    perPrincipal: config.limits.parkedPerPrincipal,
    perUpstream: config.limits.parkedPerUpstream,
  });
  const parties = {
    *[Symbol.iterator]() {
      yield* sessions;
      yield* affinities;
    },
  };
  const taskIds = new TaskIds(sealer);
  const marks = new TaskMarks(taskIds);
  const clientTasks = new ClientTasks();
  const asks = new Asks(marks, clientTasks);
  const news = new News({ upstreams, parties, offers, links, completions, reads, marks, log, dropped });
  const scouts = new Scouts(views, upstreams, offers);

  const countTools = () => {
    for (const view of views.keys()) metrics.catalogTools(view, offers.catalog(view, '').tools.size);
  };
  const events: UpstreamEvents<Exchange, Party> = {
    notification: (link, notification, about) => news.heard(link, notification, about),
    ask: (link, ask) => asks.relay(link, ask),
    gone: (link, error) => {
      links.gone(link, error);
      news.gone(link);
      if (error !== undefined) metrics.upstreamRestarted(link.upstream);
    },
    stepped: (upstream, after) => metrics.upstreamState(upstream, after.phase),
    offered: (upstream, profile, offer) => {
      if (!offers.take(upstream, profile, offer)) return;
      if (profile === '') news.superseded(upstream);
      news.offered();
      countTools();
    },
  };

  const budget = new Budget(config.limits.processes, metrics.processes);
  const clientInfo = RawObject.of({ name: 'linkspan', title: 'Linkspan', version: VERSION });
  for (const upstream of config.upstreams) {
    const ways = reach.waysTo(upstream);
    const isProcess = upstream.target.kind === 'stdio';
    const parts = { config: upstream, ways, budget: isProcess ? budget : undefined, clientInfo, log };
    metrics.upstreamState(upstream.id, 'configured');
    upstreams.set(upstream.id, new Upstream(parts, events));
  }
  countTools();

  const requestLog = requestLogBeside(log);
  const answers = new Answers(clientInfo);
  const gateway = new Gateway({
    views,
    upstreams,
    sessions,
    scouts,
    links,
    lists: new Lists(sealer, answers, scouts),
    answers,
    affinities,
    parked,
    completions,
    reads,
    sealer,
    taskIds,
    clientTasks,
    metrics,
    log,
    requestLog,
    serverInfo: clientInfo,
    inFlightPerSession: config.limits.inFlightPerSession,
    owners,
    ownName: seat.name,
    tasksPerPrincipal: config.limits.parkedPerPrincipal,
  });

  const sweeping = setInterval(() => {
    const now = performance.now();
    sessions.sweep(now);
    affinities.sweep(now);
    for (const upstream of upstreams.values()) upstream.reap(now);
  }, SWEEP_MS);
  sweeping.unref();

  for (const upstream of upstreams.values()) {
    // Whether and why it failed is in the upstream's state and in the log.
    if (upstream.config.start === 'eager') upstream.refresh().catch(() => undefined);
  }

  return {
    gateway,
    ready: () => readiness(upstreams.values()),
    status: () => [...upstreams.values()].map((upstream) => statusOf(upstream, offers)),
    refresh: async () => {
      await Promise.allSettled([...upstreams.values()].map((upstream) => upstream.refresh()));
    },
    settled: async (limitMs) => {
      const untilMs = performance.now() + limitMs;
      while (gateway.underWay > 0 && performance.now() < untilMs) {
        await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
      }
    },
    stop: async () => {
      clearInterval(sweeping);
      sessions.letAllGo();
      seat.leave();
      parked.close();
      affinities.letAllGo();
      await Promise.all([...upstreams.values()].map((upstream) => upstream.stop()));
      await reach[Symbol.asyncDispose]();
      requestLog?.flush();
      await offers.saved();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** An upstream that is required must have been reached; the rest may come and go. */
function readiness(upstreams: Iterable<Upstream<Exchange, Party>>): {
  readonly ready: boolean;
  readonly reasons: readonly string[];
} {
  const reasons: string[] = [];
  for (const { id, config, lifecycle } of upstreams) {
    if (!config.required || isUp(lifecycle)) continue;
    const why = explanation(lifecycle);
    reasons.push(`required upstream "${id}" is ${lifecycle.phase}${why === undefined ? '' : `: ${why}`}`);
  }
  return { ready: reasons.length === 0, reasons };
}

function explanation({ reason, detail }: Lifecycle): string | undefined {
  return detail === undefined || detail === reason ? reason : `${reason} (${detail})`;
}

function isUp({ phase }: Lifecycle): boolean {
  return phase === 'ready' || phase === 'degraded';
}

function statusOf(upstream: Upstream<Exchange, Party>, offers: Offers): UpstreamStatus {
  const { id } = upstream;
  const { tools, prompts, lists, quarantined } = offers.catalog(id, '');
  const left = quarantined.filter((item) => item.upstream === id).map(({ kind, name, why }) => ({ kind, name, why }));
  const offer = offers.of(id, '');
  const unreadable = offer?.unreadable?.filter(({ kind }) => kind === 'tool').length ?? 0;
  const listed = (offer?.tools.length ?? 0) + unreadable;
  const bad = left.filter(({ kind }) => kind === 'tool').length;
  return {
    id,
    title: upstream.config.title,
    transport: upstream.config.target.kind,
    state: upstream.lifecycle.phase,
    reason: explanation(upstream.lifecycle),
    connections: upstream.connections,
    tools: tools.size,
    filteredTools: Math.max(listed - tools.size - bad, 0),
    prompts: prompts.size,
    resources: lists.resources.length,
    quarantined: left,
  };
}

/** A gateway with its doors open. */
export interface Running {
  /** Of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** Stops taking requests, lets those under way finish, and leaves nothing behind. */
  stop(): Promise<void>;
}

/** @throws when an address cannot be listened on, or the state directory not be used. */
export async function compose(config: Config, log: Logger): Promise<Running> {
  const metrics = createMetrics(VERSION);
  const core = await composeCore(config, metrics, wires(config, metrics, log), log);
  let isDraining = false;
  const startedAtMs = Date.now();
  try {
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
                upstreams: () => core.status(),
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
        await core.settled(DRAIN_MS);
        await core.stop();
        await Promise.all([door.close(), operatorDoor?.close()]);
      },
    };
  } catch (thrown) {
    await core.stop();
    throw thrown;
  }
}

import type { Logger } from 'pino';
import { LOG_LEVELS, type LogLevel } from '../config/config.ts';
import { AdminError, type AdminPort } from '../operator/admin/admin-port.ts';
import type { StatusAnswer, UpstreamAnswer } from '../operator/admin/answers.ts';
import { stateOf } from '../operator/admin/config-answers.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import { logTailOf, setLogLevel } from '../telemetry/log.ts';
import { isUp } from '../upstream/lifecycle.ts';
import { VERSION } from '../version.ts';
import { callAsOperator } from './admin-call.ts';
import { catalogAnswerOf } from './admin-catalog.ts';
import { callsAnswerOf, clientsAnswerOf, sessionsAnswerOf, streamsAnswerOf } from './admin-clients.ts';
import type { Core } from './core.ts';
import { nextStepFor } from './next-step.ts';
import { widestKey } from './widest-key.ts';
import { fullUpstreamStatuses } from './upstream-status.ts';

/** The parts of the running gateway that operators see and change. */
export interface AdminSource {
  readonly core: Core;
  readonly control: ConfigControl;
  readonly stateDir: string;
  readonly log: Logger;
  readonly startedAtMs: number;
  /** Returns the URL of the merged endpoint, which a reload may move. */
  readonly url: () => string;
  readonly readiness: () => { readonly ready: boolean; readonly reasons: readonly string[] };
  /** `isDraining` is true if `/readyz` refuses new clients. */
  readonly draining: { isDraining: boolean };
}

/** Creates the admin API's view of a running gateway. */
export function createAdminPort(source: AdminSource): AdminPort {
  const { core, control, log, draining } = source;
  const { upstreamChanges } = core;

  const upstreamOf = (id: string) => {
    const upstream = core.upstreams.get(id);
    if (upstream !== undefined) return upstream;
    const ids = [...core.upstreams.values()].map((one) => one.id);
    throw new AdminError('not-found', `There is no upstream "${id}". There are: ${ids.join(', ')}.`);
  };

  const upstreams = async (): Promise<readonly UpstreamAnswer[]> => {
    const statuses = await fullUpstreamStatuses(core);
    return statuses.flatMap((status): UpstreamAnswer[] => {
      const upstream = core.upstreams.get(status.id);
      if (upstream === undefined) return [];
      const isDisabled = upstreamChanges.isDisabled(status.id);
      const isMisconfigured = upstream.config.problem !== undefined && !isDisabled;
      const { eras, ...rest } = status;
      const { legacy, modern } = eras;
      return [
        {
          ...rest,
          eras: {
            legacy: { ...legacy, listProblems: [...legacy.listProblems] },
            modern: { ...modern, listProblems: [...modern.listProblems] },
          },
          nextStep: nextStepFor({ ...status, isDisabled, isMisconfigured }),
          isDisabled,
          isRequired: upstream.config.required,
          requestsInFlight: [...upstream.links()].reduce((sum, { connection }) => sum + connection.inFlight, 0),
        },
      ];
    });
  };

  return {
    status: () => statusOf(source),
    upstreams,
    catalog: (query) => {
      const { view, era, upstream } = query;
      if (!core.views.has(view)) {
        const known = [...core.views.keys()].map((id) => (id === '' ? '/mcp' : `/mcp/${id}`));
        throw new AdminError('not-found', `There is no endpoint "${view}". There are: ${known.join(', ')}.`);
      }
      if (upstream !== undefined) upstreamOf(upstream);
      const ids = core.views.get(view)?.upstreams.map(({ id }) => id) ?? [];
      return catalogAnswerOf(core.offers.catalog(view, widestKey(core.offers, ids, era)), query);
    },
    clients: () => clientsAnswerOf(core),
    sessions: () => sessionsAnswerOf(core, performance.now()),
    streams: () => streamsAnswerOf(core),
    calls: () => callsAnswerOf(core, performance.now()),
    restartUpstream: async (id, drainMs) => {
      upstreamOf(id);
      const stopping = upstreamChanges.restart(id, drainMs);
      const [unfinished, isStarted] = await Promise.all([stopping, core.startUpstream(id)]);
      if (isStarted) return `Upstream "${id}" runs again, with new connections.${cutShort(unfinished)}`;
      const now = (await upstreams()).find((one) => one.id === id);
      const why = [now?.reason, now?.nextStep].filter((text) => text !== undefined).join('. ');
      return `Upstream "${id}" was restarted, and is ${now?.state ?? 'gone'}: ${why}${cutShort(unfinished)}`;
    },
    disableUpstream: async (id, drainMs) => {
      upstreamOf(id);
      const reason = `an operator has disabled it at ${new Date().toISOString()}`;
      const unfinished = await upstreamChanges.disable(id, reason, drainMs);
      return (
        `Upstream "${id}" is out of service until "linkspan restart ${id}" or a restart of the gateway. ` +
        `Its connections are closed. Its items stay in the lists, and calls of them are refused.${cutShort(unfinished)}`
      );
    },
    endSession: async (digest) => {
      for (const session of core.sessions) {
        if (session.digest !== digest) continue;
        await core.gateway.endSession(session);
        return `The session of ${session.caller.principal.label} has ended. Its client opens a new one.`;
      }
      throw new AdminError(
        'not-found',
        `There is no session "${digest}" in memory. Groups of modern clients cannot be ended; "linkspan ls sessions" lists both.`,
      );
    },
    setDraining: (isDraining) => {
      draining.isDraining = isDraining;
      return isDraining
        ? '/readyz answers 503, so load balancers send no new clients. Everything else goes on. Undo it with: linkspan drain --undo'
        : '/readyz answers by the state of the upstreams again.';
    },
    get logLevel() {
      return LOG_LEVELS.find((level) => level === log.level) ?? 'info';
    },
    setLogLevel: (level: LogLevel) => setLogLevel(log, level),
    callTool: async (operator, call, signal) => {
      if (!core.views.has(call.view)) throw new AdminError('not-found', `There is no endpoint "${call.view}".`);
      return await callAsOperator(core.gateway, operator, call, signal);
    },
    recentLog: () => logTailOf(log)?.recent() ?? [],
    followLog: (receive) => {
      const tail = logTailOf(log);
      if (tail === undefined) throw new AdminError('not-supported', 'This gateway keeps no log.');
      const stop = tail.follow(receive);
      if (stop === undefined) throw new AdminError('overloaded', 'Too many operators follow the log. End one of them.');
      return stop;
    },
    config: control,
  };
}

/** Returns a sentence about connections that were closed before their requests had ended; empty if there are none. */
function cutShort(connections: number): string {
  return connections === 0 ? '' : ` Connections that were closed before their requests had ended: ${connections}.`;
}

function statusOf({ core, control, stateDir, startedAtMs, url, readiness, draining }: AdminSource): StatusAnswer {
  const { ready, reasons } = readiness();
  const all = [...core.upstreams.values()];
  // Before its first use an upstream is neither ready nor in trouble; it counts as not ready.
  const readyCount = all.filter(({ lifecycle }) => isUp(lifecycle)).length;
  return {
    version: VERSION,
    node: process.version,
    pid: process.pid,
    startedAt: new Date(startedAtMs).toISOString(),
    config: stateOf(control),
    stateDir,
    endpoint: url(),
    isReady: ready,
    reasons: [...reasons],
    isDraining: draining.isDraining,
    sessions: core.sessions.size,
    clientGroups: core.groups.size,
    requestsInFlight: core.inFlightCount,
    parkedCalls: [...core.parked.waiting()].length,
    memoryBytes: process.memoryUsage.rss(),
    upstreams: { ready: readyCount, notReady: all.length - readyCount, total: all.length },
  };
}

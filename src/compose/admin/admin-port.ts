import { COMMAND } from '../../command-name.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import type { View } from '../../catalog/view.ts';
import type { LogLevel } from '../../config/values/config.ts';
import { hasCallersLists } from '../../config/values/upstream-config.ts';
import { type GroupsOfKey, readPrincipal } from './read-principal.ts';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import type { StatusAnswer, UpstreamAnswer, UpstreamStatus } from '../../operator/admin/answers.ts';
import type { Readiness } from '../../operator/app.ts';
import type { ListRights } from '../../policy/rights.ts';
import type { Era } from '../../protocol/revisions.ts';
import { setLogLevel } from '../../telemetry/log.ts';
import { isUp } from '../../upstream/lifecycle/lifecycle.ts';
import { VERSION } from '../../version.ts';
import { callAsOperator } from './admin-call.ts';
import { catalogAnswerOf } from './admin-catalog.ts';
import { callsAnswerOf, clientsAnswerOf, sessionsAnswerOf, streamsAnswerOf } from './admin-clients.ts';
import type { Core } from '../core/core.ts';
import { explainWith } from './explain.ts';
import { logLevelOf, processControls, type ProcessSource } from './process-controls.ts';
import { nextStepFor } from '../next-step.ts';
import { listGapsOf } from '../lists/list-gaps.ts';
import { widestKey } from '../lists/last-lists.ts';
import { disabledReason } from '../reload/upstream-changes.ts';
import { fullUpstreamStatuses, upstreamStatuses } from '../upstream-status.ts';
import { endpointPath } from '../../endpoint-path.ts';

/** The parts of the running gateway that operators see and change. */
export interface AdminSource extends ProcessSource {
  readonly core: Core;
  /** Returns the URL of the merged endpoint, which a reload may move. */
  readonly url: () => string;
  readonly readiness: () => Readiness;
  /** Returns the groups that API keys of clients have now. */
  readonly groupsOfKey: GroupsOfKey;
}

export function sessionOf(core: Pick<Core, 'sessions'>, digest: string) {
  for (const session of core.sessions) if (session.digest === digest) return session;
  return undefined;
}

/** Creates the admin API's view of a running gateway. */
export function createAdminPort(source: AdminSource): AdminPort {
  const { core, log } = source;
  const { upstreamChanges } = core;

  const upstreamOf = (id: string) => {
    const upstream = core.upstreams.get(id);
    if (upstream !== undefined) return upstream;
    const ids = [...core.upstreams.values()].map((one) => one.id);
    throw new AdminError('not-found', `There is no upstream "${id}". There are: ${ids.join(', ')}.`);
  };

  const viewOf = (id: string): View => {
    const view = core.views.get(id);
    if (view !== undefined) return view;
    const known = [...core.views.keys()].map((one) => endpointPath(one));
    throw new AdminError('not-found', `There is no endpoint "${id}". There are: ${known.join(', ')}.`);
  };

  const catalogOf = (view: View, era: Era, rights?: ListRights): Catalog => {
    return core.offers.catalog(view.id, widestKey(core.offers, view.upstreams, era), rights);
  };

  const answersOf = (statuses: readonly UpstreamStatus[]): UpstreamAnswer[] =>
    statuses.flatMap((status): UpstreamAnswer[] => {
      const upstream = core.upstreams.get(status.id);
      if (upstream === undefined) return [];
      const isDisabled = upstreamChanges.isDisabled(status.id);
      const isMisconfigured = upstream.config.problem !== undefined && !isDisabled;
      return [
        {
          ...status,
          ...listGapsOf(status.id, core.offers, core.views),
          nextStep: nextStepFor({ ...status, isDisabled, isMisconfigured }),
          isDisabled,
          isRequired: upstream.config.required,
          requestsInFlight: [...upstream.links()].reduce((sum, { connection }) => sum + connection.inFlight, 0),
        },
      ];
    });

  return {
    status: () => statusOf(source),
    upstreams: async () => ({ upstreams: answersOf(await fullUpstreamStatuses(core)) }),
    catalog: (query) => {
      const { era, upstream } = query;
      const view = viewOf(query.view);
      if (upstream !== undefined) upstreamOf(upstream);
      return catalogAnswerOf(catalogOf(view, era), query);
    },
    explain: async ({ as, ...query }) => {
      const view = viewOf(query.view);
      const principal = readPrincipal(as, source.groupsOfKey);
      if (typeof principal === 'string') throw new AdminError('invalid-request', `as: ${principal}`);
      const lifecycleOf = (id: string) => upstreamOf(id).lifecycle;
      const isCallers = (id: string) => hasCallersLists(upstreamOf(id).config);
      const catalogFor = (rights: ListRights | undefined) => catalogOf(view, 'legacy', rights);
      const parts = { view, catalogFor, gate: core.gate, lifecycleOf, hasCallersLists: isCallers };
      return await explainWith((request) => core.external.explain(request), parts, { ...query, principal });
    },
    clients: () => clientsAnswerOf(core),
    sessions: () => sessionsAnswerOf(core, performance.now()),
    streams: () => streamsAnswerOf(core),
    calls: () => callsAnswerOf(core, performance.now()),
    restartUpstream: async (id, drainMs) => {
      upstreamOf(id);
      const stopping = upstreamChanges.restart(id, drainMs);
      const [unfinished, isStarted] = await Promise.all([stopping, core.startUpstream(id)]);
      if (isStarted) {
        return { isStarted, message: `Upstream "${id}" runs again, with new connections.${cutShort(unfinished)}` };
      }
      // At once, since a further attempt may begin.
      const now = answersOf(upstreamStatuses(core)).find((one) => one.id === id);
      const why = [now?.reason, now?.nextStep].filter((text) => text !== undefined).join('. ');
      const message = `Upstream "${id}" was restarted, and is ${now?.state ?? 'gone'}: ${why}${cutShort(unfinished)}`;
      return { isStarted, message };
    },
    disableUpstream: async (id, drainMs) => {
      upstreamOf(id);
      const unfinished = await upstreamChanges.disable(id, disabledReason(id), drainMs);
      return {
        message:
          `Upstream "${id}" is out of service until "${COMMAND} restart ${id}" or a restart of the gateway. ` +
          `Its connections are closed. Its items stay in the lists, and calls of them are refused.${cutShort(unfinished)}`,
      };
    },
    endSession: async (digest) => {
      const session = sessionOf(core, digest);
      if (session === undefined) {
        const others = `Groups of clients without sessions cannot be ended; "${COMMAND} ls sessions" lists both.`;
        throw new AdminError('not-found', `There is no session "${digest}" in memory. ${others}`);
      }
      await core.gateway.endSession(session);
      return `The session of ${session.caller.principal.label} has ended. Its client opens a new one.`;
    },
    rotateKeys: (graceMs) => core.rotateKeys(graceMs),
    get logLevel() {
      return logLevelOf(log);
    },
    setLogLevel: (level: LogLevel) => {
      setLogLevel(log, level);
      return [];
    },
    callTool: async (operator, call, signal) => {
      viewOf(call.view);
      return await callAsOperator(core.gateway, operator, call, signal);
    },
    ...processControls(source),
  };
}

/** Returns a sentence about connections that were closed before their requests had ended; empty if there are none. */
function cutShort(connections: number): string {
  return connections === 0 ? '' : ` Connections that were closed before their requests had ended: ${connections}.`;
}

function statusOf({ core, control, stateDir, startedAtMs, url, readiness, phase }: AdminSource): StatusAnswer {
  const { ready, reasons } = readiness();
  const all = [...core.upstreams.values()];
  // Before its first use an upstream is neither ready nor in trouble; it counts as not ready.
  const readyCount = all.filter(({ lifecycle }) => isUp(lifecycle)).length;
  return {
    version: VERSION,
    node: process.version,
    pid: process.pid,
    startedAt: new Date(startedAtMs).toISOString(),
    config: control.state,
    stateDir,
    endpoint: url(),
    isReady: ready,
    reasons: [...reasons],
    isDraining: phase.isDraining,
    sessions: core.sessions.size,
    clientGroups: core.groups.size,
    requestsInFlight: core.ownInFlightCount,
    parkedCalls: [...core.parked.waiting()].length,
    memoryBytes: process.memoryUsage.rss(),
    upstreams: { ready: readyCount, notReady: all.length - readyCount, total: all.length },
  };
}

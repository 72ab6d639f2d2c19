import { setTimeout as sleep } from 'node:timers/promises';
import { updateViews } from '../../catalog/view.ts';
import type { Config } from '../../config/values/config.ts';
import { startsWithGateway } from '../../config/values/upstream-config.ts';
import type { ConfigDiff } from '../../config/changes/diff.ts';
import { RawObject } from '../../json/json.ts';
import { scopesOnDemandOf } from '../../policy/scopes-on-demand.ts';
import { isUp } from '../../upstream/lifecycle/lifecycle.ts';
import type { ClientRequestParts } from '../core/client-requests.ts';
import type { ClientParts } from '../core/clients.ts';
import type { ConnectionParts } from '../core/connections.ts';
import type { CommonParts } from '../core/core-parts.ts';
import type { UpstreamMessageParts } from '../core/upstream-messages.ts';
import type { UpstreamChanges } from './upstream-changes.ts';

/** The interval at which the requests in flight at a removed endpoint are counted. */
const POLL_MS = 100;

/** The parts of the core that follow the config. */
interface ApplierParts
  extends
    CommonParts,
    ConnectionParts,
    ClientParts,
    Pick<UpstreamMessageParts, 'factory' | 'changedLists'>,
    Pick<ClientRequestParts, 'listRefresher'> {
  /** Makes this config the one that the parts of the core read. */
  setConfig(next: Config): void;
  readonly upstreamChanges: UpstreamChanges;
}

/** A config that the core has applied. */
export interface AppliedConfig {
  /** Resolves when removed and replaced upstreams are stopped, and the sessions of removed endpoints have ended. */
  readonly drained: Promise<void>;
}

/**
 * Applies another config while requests are in flight, for which `UpstreamTransports.prepare` has loaded all that it needs. Resolves when it serves new
 * requests.
 *
 * @param diff the difference from the running config.
 */
export type ApplyConfig = (next: Config, diff: ConfigDiff) => Promise<AppliedConfig>;

/** Returns the function that applies another config to a core. */
export function configApplier(parts: ApplierParts): ApplyConfig {
  const { upstreams, factory, offers, records, listRefresher } = parts;
  return async (next, diff) => {
    const shownBefore = shownUpstreams(parts);
    // Up to the next wait no request is served, so that all parts change together.
    parts.setConfig(next);
    factory.setLimits();
    updateViews(parts.views, next);
    parts.shares.setConfig(next);
    parts.gate.setConfig(next.access, scopesOnDemandOf(next.auth));
    parts.groups.onPolicyChange();
    const fresh = offers.setConfig(next);
    records.setKeys(offers.stored.upstreamKeys());
    const running = [...upstreams.values()].filter(({ connections }) => connections > 0).map(({ id }) => id);
    const draining = [
      parts.upstreamChanges.apply(next, diff),
      endEndpoints(parts, diff.removedEndpoints, next.reload.drainMs),
    ];

    // Lists that cannot be read are fetched again.
    await Promise.allSettled([offers.restore(fresh), records.restore(fresh)]);
    void parts.changedLists.onConfigChanged();
    listRefresher.dropChecks();
    const created = new Set([...diff.added, ...diff.replaced.map(({ config }) => config)].map(({ id }) => id));
    const shown = shownUpstreams(parts);
    for (const upstream of upstreams.values()) {
      const { id, config, lifecycle } = upstream;
      if (config.problem !== undefined) continue;
      const isNew = created.has(id);
      if (startsWithGateway(config) ? isNew || !isUp(lifecycle) : isNew && running.includes(id))
        void listRefresher.refreshAtStart(upstream);
      // Connected clients have listed before, and learn of its items only from a change. At their endpoints it may be new too.
      else if (shown.has(id) && (isNew || !shownBefore.has(id))) void listRefresher.refreshUnlessKnown(upstream);
    }
    return { drained: Promise.all(draining).then(() => undefined) };
  };
}

/** Returns the ids of the upstreams at the endpoints of connected clients. */
function shownUpstreams({ sessions, groups, views }: ApplierParts): ReadonlySet<string> {
  const used = new Set([...sessions, ...groups].map(({ view }) => view));
  return new Set([...used].flatMap((view) => views.get(view)?.upstreams.map(({ id }) => id) ?? []));
}

/** Tells the clients of removed endpoints about it, and ends their sessions when their requests have ended. */
async function endEndpoints(parts: ApplierParts, ids: readonly string[], drainMs: number): Promise<void> {
  const { sessions, groups, views, metrics, log } = parts;
  if (ids.length === 0) return;
  for (const id of ids) metrics.removeView(id);
  for (const session of sessions) {
    if (!ids.includes(session.view)) continue;
    const message = `the endpoint /mcp/${session.view} was removed from the configuration of the gateway; this session ends`;
    session.sendLog('warning', RawObject.of({ level: 'warning', logger: 'linkspan', data: { message } }));
  }
  const isBusy = () =>
    [...sessions.all()].some(({ view, inFlight }) => inFlight.size > 0 && ids.includes(view)) ||
    // Listening streams count as requests, and do not end by themselves.
    [...groups].some(({ view, openCount, subscribers }) => openCount > subscribers.size && ids.includes(view));
  const untilMs = performance.now() + drainMs;
  while (isBusy() && performance.now() < untilMs) await sleep(POLL_MS, undefined, { ref: false });
  // Another reload may have brought an endpoint back.
  const gone = ids.filter((id) => !views.has(id));
  for (const id of gone) {
    groups.releaseWhere(({ view }) => view === id);
    await sessions
      .endWhere(({ caller }) => caller.view === id)
      .catch((thrown: unknown) => log.warn({ err: thrown, endpoint: id }, 'session not ended'));
  }
}

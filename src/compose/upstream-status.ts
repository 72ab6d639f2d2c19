import { hasCallersLists, type UpstreamConfig } from '../config/values/upstream-config.ts';
import type { Upstream, Upstreams } from '../gateway/exchange/connection-holder.ts';
import { differenceLine } from '../lock/difference-text.ts';
import type { Offers } from '../gateway/lists/offers.ts';
import type { LockState } from '../gateway/lists/pinned-offers.ts';
import type { Readiness } from '../operator/app.ts';
import type { UpstreamStatus } from '../operator/admin/answers.ts';
import type { Era } from '../protocol/revisions.ts';
import type { UpstreamLoad } from '../telemetry/upstream-metrics.ts';
import { shownText } from '../peer-text.ts';
import { isUp, type Lifecycle } from '../upstream/lifecycle/lifecycle.ts';
import { firstLines, problemLine } from './lists/list-gaps.ts';
import { widestKey } from './lists/last-lists.ts';
import type { ProcessUsage } from '../upstream/stdio/process-usage.ts';

/** The parts of the core whose status is reported. */
interface StatusSource {
  readonly upstreams: Upstreams;
  readonly offers: Offers;
}

/** The longest reason of a state, which is made of words of the gateway and of the upstream. */
const MAX_REASON_CHARS = 1_000;

function explanation({ reason, detail }: Lifecycle): string | undefined {
  const isNew = detail !== undefined && reason?.includes(detail) !== true;
  const whole = isNew ? `${reason} (${detail})` : reason;
  return whole === undefined ? undefined : shownText(whole, MAX_REASON_CHARS);
}

/** Returns the seconds for which no connection is opened; undefined if one may be opened at once, or not before the config changes. */
function retrySeconds({ retryAtMs }: Lifecycle): number | undefined {
  const seconds = Math.ceil((retryAtMs - performance.now()) / 1_000);
  return seconds > 0 && Number.isFinite(seconds) ? seconds : undefined;
}

/** Returns the status of one upstream. */
export function upstreamStatus(upstream: Upstream, { offers }: Pick<StatusSource, 'offers'>): UpstreamStatus {
  const { id } = upstream;
  const key = widestKey(offers, [upstream], 'legacy');
  const { tools, prompts, resources, quarantined } = offers.catalog(id, key);
  const offer = offers.offerFor(id, key);
  const unreadable = offer?.unreadable?.filter(({ kind }) => kind === 'tool').length ?? 0;
  const listed = (offer?.tools.length ?? 0) + unreadable;
  const isRefused = quarantined.some((item) => item.upstream === id && item.isRefusal === true);
  const bad = quarantined.filter((item) => item.upstream === id && item.kind === 'tool').length;
  return {
    id,
    title: upstream.config.title,
    transport: upstream.config.target.kind,
    state: upstream.lifecycle.phase,
    since: new Date(upstream.lifecycle.sinceMs).toISOString(),
    reason: explanation(upstream.lifecycle),
    retryInSeconds: retrySeconds(upstream.lifecycle),
    connections: upstream.connections,
    eras: { legacy: eraStatus(upstream, 'legacy', offers), modern: eraStatus(upstream, 'modern', offers) },
    isListed: offer !== undefined,
    isForCallers: hasCallersLists(upstream.config),
    tools: tools.size,
    filteredTools: isRefused ? 0 : Math.max(listed - tools.size - bad, 0),
    prompts: prompts.size,
    resources: resources.texts.length,
    lock: lockStatus(offers.lockState(id)),
  };
}

const MAX_DIFFERENCES = 50;

function lockStatus(state: LockState | undefined): UpstreamStatus['lock'] {
  if (state === undefined) return undefined;
  const { onChange, differences, withheld } = state;
  const details = differences.slice(0, MAX_DIFFERENCES).map(differenceLine);
  return { onChange, differences: differences.length, withheld, details };
}

function eraStatus(upstream: Upstream, era: Era, offers: Offers): UpstreamStatus['eras'][Era] {
  const { speaks, evidence } = upstream.eras[era];
  const isShown = speaks !== 'no' && !hasCallersLists(upstream.config);
  const offer = isShown ? offers.widestOffer(upstream.id, era) : undefined;
  return {
    speaks,
    how: evidence === '' ? undefined : shownText(evidence),
    revision: upstream.revisionIn(era),
    servedIn: upstream.servingEra(era),
    tools: offer?.tools.length ?? 0,
    prompts: offer?.prompts.length ?? 0,
    resources: offer?.resources.length ?? 0,
    listProblems: firstLines(speaks === 'no' ? [] : offers.problemsOf(upstream.id, era).map(problemLine)),
  };
}

/** Returns the status of every upstream, in the order of the config. */
export function upstreamStatuses(source: StatusSource): readonly UpstreamStatus[] {
  return [...source.upstreams.values()].map((upstream) => upstreamStatus(upstream, source));
}

/** Resolves with the same statuses, and the processes of each stdio upstream with their memory. */
export async function fullUpstreamStatuses(
  core: StatusSource & { processUsage(): Promise<ReadonlyMap<string, ProcessUsage>> },
): Promise<readonly UpstreamStatus[]> {
  const usage = await core.processUsage();
  return [...core.upstreams.values()].map((upstream) => {
    const status = upstreamStatus(upstream, core);
    if (status.transport !== 'stdio') return status;
    const { connections } = status;
    const advice = sharingAdvice(upstream.config, connections);
    const withoutMemory = { processes: connections, memoryNote: connections === 0 ? undefined : MEMORY_UNKNOWN };
    return { ...status, ...(usage.get(upstream.id) ?? withoutMemory), advice };
  });
}

/** Returns the load of an upstream for metrics. @param usage of its processes, if they could be read. */
export function loadOf(upstream: Upstream, usage: ProcessUsage | undefined): UpstreamLoad {
  const { id, config, connections, limiter, isProcess } = upstream;
  return {
    id,
    isRequired: config.required,
    inFlight: limiter.activeCount,
    queued: limiter.waitingCount,
    connections,
    processes: isProcess ? (usage?.processes ?? connections) : undefined,
    memoryBytes: isProcess && connections === 0 ? 0 : usage?.memoryBytes,
  };
}

/** The memory note of an upstream whose processes cannot be read; each connection is at least one process. */
const MEMORY_UNKNOWN = 'unknown: the system does not show the processes (Linux does, in /proc)';

/** Returns a sentence about the settings that need fewer processes; undefined if there are none. */
function sharingAdvice({ isolation }: UpstreamConfig, connections: number): string | undefined {
  if (connections < 2 || isolation === 'shared') return undefined;
  const perUser = isolation === 'principal' ? '' : 'isolation: principal takes one process for each user, ';
  return (
    `${perUser}isolation: shared takes one for all; ` +
    'it fits where the server keeps nothing between calls (docs/isolation.md)'
  );
}

/**
 * Returns whether the gateway is ready for clients. Each required upstream must be up, and the state writable unless requests do not need
 * it. A reason may be given although it is.
 */
export function readiness({
  upstreams,
  stateFailure,
  servesWithoutState,
}: Pick<StatusSource, 'upstreams'> & {
  readonly stateFailure: string | undefined;
  readonly servesWithoutState: boolean;
}): Readiness {
  const reasons: string[] = [];
  for (const { id, config, lifecycle } of upstreams.values()) {
    if (!config.required || isUp(lifecycle)) continue;
    const why = explanation(lifecycle);
    reasons.push(`required upstream "${id}" is ${lifecycle.phase}${why === undefined ? '' : `: ${why}`}`);
  }
  const isStateUsable = stateFailure === undefined || servesWithoutState;
  const ready = reasons.length === 0 && isStateUsable;
  return { ready, reasons: stateFailure === undefined ? reasons : [stateFailure, ...reasons] };
}

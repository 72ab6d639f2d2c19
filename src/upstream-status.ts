import type { ListProblem } from './catalog/problems.ts';
import type { UpstreamConfig } from './config/config.ts';
import type { ConnectionHolder } from './gateway/exchange/connection-holder.ts';
import type { Exchange } from './gateway/exchange/exchange.ts';
import type { Offers } from './gateway/lists/offers.ts';
import type { EraStatus, UpstreamStatus } from './operator/status.ts';
import type { Era } from './protocol/revisions.ts';
import type { Lifecycle } from './upstream/lifecycle.ts';
import type { ProcessUsage } from './upstream/stdio/process-usage.ts';
import type { Upstream } from './upstream/upstream.ts';

export function explanation({ reason, detail }: Lifecycle): string | undefined {
  return detail === undefined || detail === reason ? reason : `${reason} (${detail})`;
}

export function isUp({ phase }: Lifecycle): boolean {
  return phase === 'ready' || phase === 'degraded';
}

export function statusOf(upstream: Upstream<Exchange, ConnectionHolder>, offers: Offers): UpstreamStatus {
  const { id } = upstream;
  const { tools, prompts, lists, quarantined } = offers.catalog(id, 'legacy', '');
  const offer = offers.best(id, 'legacy', '');
  const unreadable = offer?.unreadable?.filter(({ kind }) => kind === 'tool').length ?? 0;
  const listed = (offer?.tools.length ?? 0) + unreadable;
  const bad = quarantined.filter((item) => item.upstream === id && item.kind === 'tool').length;
  return {
    id,
    title: upstream.config.title,
    transport: upstream.config.target.kind,
    state: upstream.lifecycle.phase,
    reason: explanation(upstream.lifecycle),
    connections: upstream.connections,
    eras: { legacy: eraStatus(upstream, 'legacy', offers), modern: eraStatus(upstream, 'modern', offers) },
    tools: tools.size,
    filteredTools: Math.max(listed - tools.size - bad, 0),
    prompts: prompts.size,
    resources: lists.resources.length,
  };
}

function eraStatus(upstream: Upstream<Exchange, ConnectionHolder>, era: Era, offers: Offers): EraStatus {
  const { speaks, evidence } = upstream.eras[era];
  const offer = speaks === 'no' ? undefined : offers.bestIn(upstream.id, era, '');
  return {
    speaks,
    how: evidence === '' ? undefined : evidence,
    revision: upstream.revisionIn(era),
    servedIn: upstream.servingEra(era),
    tools: offer?.tools.length ?? 0,
    prompts: offer?.prompts.length ?? 0,
    resources: offer?.resources.length ?? 0,
    listProblems: listProblems(speaks === 'no' ? [] : offers.problemsOf(upstream.id, era)),
  };
}

/** Problems of an upstream's lists that its status names. */
const MAX_PROBLEMS = 50;

function listProblems(problems: readonly ListProblem[]): readonly string[] {
  const named = problems.slice(0, MAX_PROBLEMS).map(({ kind, name, repair, detail }) => {
    return `${kind} "${name}": ${repair}: ${detail}`;
  });
  return problems.length > MAX_PROBLEMS ? [...named, `and ${problems.length - MAX_PROBLEMS} more`] : named;
}

/** The status of all upstreams, with the processes of each and their memory. */
export function fullStatus(
  upstreams: Iterable<Upstream<Exchange, ConnectionHolder>>,
  offers: Offers,
  usage: ReadonlyMap<string, ProcessUsage>,
): readonly UpstreamStatus[] {
  return [...upstreams].map((upstream) => {
    const status = statusOf(upstream, offers);
    if (status.transport !== 'stdio') return status;
    const { connections } = status;
    const advice = sharingAdvice(upstream.config, connections);
    const unread = { processes: connections, memoryNote: connections === 0 ? undefined : UNREAD };
    return { ...status, ...(usage.get(upstream.id) ?? unread), advice };
  });
}

/** Each connection is a process at least. */
const UNREAD = 'unknown: the system does not show the processes (Linux does, in /proc)';

/** Says which setting would take fewer processes. */
function sharingAdvice({ isolation }: UpstreamConfig, connections: number): string | undefined {
  if (connections < 2 || isolation === 'shared') return undefined;
  const perUser = isolation === 'principal' ? '' : 'isolation: principal takes one process for each user, ';
  return (
    `${perUser}isolation: shared takes one for all; ` +
    'it fits where the server keeps nothing between calls (docs/isolation.md)'
  );
}

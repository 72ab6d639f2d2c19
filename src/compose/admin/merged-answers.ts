import type { StatusAnswer, UpstreamAnswer } from '../../operator/admin/answers.ts';
import { UPSTREAM_STATES } from '../../operator/status.ts';

/** Returns the status of several processes as one. Whatever cannot be added up is that of the first. */
export function mergedStatus(first: StatusAnswer, others: readonly StatusAnswer[]): StatusAnswer {
  return others.reduce(
    (sum, each) => ({
      ...sum,
      isReady: sum.isReady && each.isReady,
      reasons: [...new Set([...sum.reasons, ...each.reasons])],
      sessions: sum.sessions + each.sessions,
      clientGroups: sum.clientGroups + each.clientGroups,
      requestsInFlight: sum.requestsInFlight + each.requestsInFlight,
      parkedCalls: sum.parkedCalls + each.parkedCalls,
      memoryBytes: sum.memoryBytes + each.memoryBytes,
      upstreams: sum.upstreams.ready >= each.upstreams.ready ? sum.upstreams : each.upstreams,
    }),
    first,
  );
}

/** Returns the upstreams of several processes, each of them once. */
export function mergedUpstreams(lists: readonly (readonly UpstreamAnswer[])[]): readonly UpstreamAnswer[] {
  const byId = new Map<string, UpstreamAnswer>();
  for (const upstream of lists.flat()) {
    const known = byId.get(upstream.id);
    byId.set(upstream.id, known === undefined ? upstream : mergedUpstream(known, upstream));
  }
  return [...byId.values()];
}

/** Returns the state of an upstream at the process where it is most useful, with the connections of both. */
function mergedUpstream(a: UpstreamAnswer, b: UpstreamAnswer): UpstreamAnswer {
  const isFirstBetter = UPSTREAM_STATES.indexOf(a.state) <= UPSTREAM_STATES.indexOf(b.state);
  const sum = (x: number | undefined, y: number | undefined) =>
    x === undefined && y === undefined ? undefined : (x ?? 0) + (y ?? 0);
  const [processes, memoryBytes] = [sum(a.processes, b.processes), sum(a.memoryBytes, b.memoryBytes)];
  return {
    ...(isFirstBetter ? a : b),
    isDisabled: a.isDisabled || b.isDisabled,
    connections: a.connections + b.connections,
    requestsInFlight: a.requestsInFlight + b.requestsInFlight,
    ...(processes === undefined ? {} : { processes }),
    ...(memoryBytes === undefined ? {} : { memoryBytes }),
  };
}

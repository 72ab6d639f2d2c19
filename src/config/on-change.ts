import type { OnChange } from '../lock/pins.ts';
import type { Config, LockConfig } from './values/config.ts';
import type { Problem } from './document/problem.ts';
import { CALLERS_LISTS, hasCallersLists, type UpstreamConfig } from './values/upstream-config.ts';
import type { UpstreamSource } from './upstream-source.ts';
import { placeOf } from './upstreams/client-file.ts';

/** Returns the reaction to a definition of an upstream that differs from the lock; undefined if nothing of it is pinned. */
export function onChangeOf({ lock }: Pick<Config, 'lock'>, upstream: UpstreamConfig): OnChange | undefined {
  if (lock === undefined || upstream.lock === 'off') return undefined;
  return upstream.lock ?? lock.onChange;
}

/**
 * Returns the problems of upstreams that an enforced lock withholds as a whole, by id. Nothing of them is pinned, and the gateway cannot
 * list them without a caller to write pins.
 */
export function judgeUnpinnable(
  { document, map }: UpstreamSource,
  lock: LockConfig | undefined,
  upstreams: readonly UpstreamConfig[],
): ReadonlyMap<string, Problem> {
  const problems = new Map<string, Problem>();
  if (lock === undefined) return problems;
  for (const upstream of upstreams) {
    const { id, lock: own } = upstream;
    const onChange = onChangeOf({ lock }, upstream);
    const isPinned = (lock.pins.lists.get(id)?.length ?? 0) > 0;
    if (!hasCallersLists(upstream) || onChange === undefined || onChange === 'warn' || isPinned) continue;
    const path = placeOf(map, id);
    const message = `${CALLERS_LISTS}, and nothing of it is in the lock, so that "${onChange}" withholds everything; set "lock: off"`;
    problems.set(id, document.problem([...path, own === undefined ? 'auth' : 'lock'], message, 'key'));
  }
  return problems;
}

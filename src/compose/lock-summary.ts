import { basename } from 'node:path';
import type { Config } from '../config/values/config.ts';
import type { Core } from './core/core.ts';

/**
 * Returns the lock of a config and what it withholds, as one line for the start. Undefined if nothing is pinned. Only lists that are known
 * already are compared: mostly those for all clients of an earlier process. Others follow in the log.
 */
export function lockSummary(
  { lock }: Pick<Config, 'lock'>,
  { upstreams, offers }: Pick<Core, 'upstreams' | 'offers'>,
): string | undefined {
  if (lock === undefined) return undefined;
  const differing = [...upstreams.values()].flatMap(({ id }) => {
    const state = offers.lockState(id);
    if (state === undefined || state.differences.length === 0) return [];
    const { differences, withheld } = state;
    return [`${id} ${differences.length}${withheld === 0 ? '' : ` (${withheld} items withheld)`}`];
  });
  const found =
    differing.length === 0 ? '' : `; definitions that differ in the lists known so far: ${differing.join(', ')}`;
  return `${basename(lock.file)}, ${lock.onChange}${found}`;
}

import type { UpstreamConfig } from './upstream-config.ts';

/**
 * Returns the upstreams that cannot be started although they could before, or that are new. A file with one of them is broken: a
 * typing error must not end an upstream that works.
 */
export function newlyFailing(
  before: readonly UpstreamConfig[],
  next: readonly UpstreamConfig[],
): readonly UpstreamConfig[] {
  const failedBefore = new Set(before.filter(({ problem }) => problem !== undefined).map(({ id }) => id));
  return next.filter(({ id, problem }) => problem !== undefined && !failedBefore.has(id));
}

import { inSlices } from '../../work-turn.ts';
import { ERAS } from '../../protocol/revisions.ts';
import type { ProcessUsage } from '../../upstream/stdio/process-usage.ts';
import { loadOf } from '../upstream-status.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';
import type { UpstreamMessageParts } from './upstream-messages.ts';

/** Sets the metrics that are read from the parts of the core when they are scraped. */
export function registerScrapes(
  { metrics, views, upstreams, transports }: CommonParts,
  { offers }: ConnectionParts,
  { resourceCache }: UpstreamMessageParts,
): void {
  metrics.onScrape('readCacheBytes', () => resourceCache.bytes);
  metrics.beforeScrape(() =>
    inSlices(views.keys(), (view) => {
      for (const era of ERAS) metrics.setCatalogTools(view, era, offers.toolListSize(view, era));
    }),
  );
  metrics.beforeScrape(async () => {
    const hasProcesses = [...upstreams.values()].some(({ isProcess, connections }) => isProcess && connections > 0);
    const usage = hasProcesses ? await transports.processUsage() : new Map<string, ProcessUsage>();
    metrics.setUpstreamLoads(
      [...upstreams.values()].map((upstream) => ({
        ...loadOf(upstream, usage.get(upstream.id)),
        withheldItems: offers.lockState(upstream.id)?.withheld,
      })),
    );
  });
}

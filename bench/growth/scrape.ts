import { monitorEventLoopDelay } from 'node:perf_hooks';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts';
import type { Figures } from '../sheet.ts';
import type { Series } from '../suite.ts';

const SCRAPES = 5;
const UPSTREAMS = 300;
const ERRORS = [undefined, 'tool_error', 'rpc_error', 'overloaded', 'upstream-timeout', 'cancelled'] as const;
const REVISIONS = ['2025-06-18', '2025-11-25', '2026-07-28'];

/** Observes more tools, upstreams, endpoints and outcomes than each label takes. */
function fill(metrics: Metrics): void {
  const loads = [];
  for (let n = 0; n < UPSTREAMS; n++) {
    const upstream = `upstream_${n}`;
    metrics.addUpstream(upstream);
    metrics.setUpstreamState(upstream, 'ready');
    metrics.recordListing(upstream, 1);
    metrics.setCatalogTools(`profile_${n}`, 'legacy', { tools: n, tokens: n });
    metrics.setCatalogTools(`profile_${n}`, 'modern', { tools: n, tokens: n });
    loads.push({
      id: upstream,
      isRequired: false,
      inFlight: n,
      queued: n,
      connections: n,
      processes: n,
      memoryBytes: n,
    });
    for (const error of ERRORS) {
      for (const revision of REVISIONS) {
        const call = { method: 'tools/call', tool: `tool_${n}`, error, revision, transport: 'tcp' } as const;
        metrics.recordRequest(call, 1);
        metrics.recordUpstreamRequest(upstream, call, 1);
      }
    }
  }
  metrics.setUpstreamLoads(loads);
}

/** Measures the writing of all metrics in this process, with each label at its bound. */
async function measure(): Promise<Figures> {
  const metrics = createMetrics('0');
  metrics.addProcess();
  fill(metrics);
  let bytes = 0;
  let tookMs = 0;
  const delay = monitorEventLoopDelay({ resolution: 1 });
  await metrics.text();
  delay.enable();
  for (let n = 0; n < SCRAPES; n++) {
    const beganMs = performance.now();
    bytes = (await metrics.text()).length;
    tookMs = Math.max(tookMs, performance.now() - beganMs);
  }
  delay.disable();
  return { 'scrape ms': tookMs, 'longest block ms': delay.max / 1e6, kB: bytes / 1_000 };
}

export const SCRAPE: Series = {
  id: 'scrape',
  title: `one scrape, every label at its bound, the longest of ${SCRAPES}`,
  points: [{ label: 'bound', measure }],
  bounds: [{ point: 'bound', column: 'longest block ms', atMost: 50 }],
};

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WorkerMetrics } from '../../../src/compose/workers/worker-metrics.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';

const COUNTED = '# HELP made_total Things.\n# TYPE made_total counter\nmade_total 5\n';

test('a worker that ends during a scrape is counted once', { timeout: 120_000 }, async () => {
  const gone = Promise.withResolvers<never>();
  const worker = { lastMetrics: COUNTED, call: () => gone.promise };
  let workers = [worker];
  const metrics = new WorkerMetrics(createMetrics('0'), () => workers);
  const scraped = metrics.text();
  workers = [];
  gone.reject(new Error('the worker has gone'));
  metrics.onEnded(worker.lastMetrics);
  assert.match(await scraped, /^made_total 5$/m);
  assert.match(await metrics.text(), /^made_total 5$/m);
});

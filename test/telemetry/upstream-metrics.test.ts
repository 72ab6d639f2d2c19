import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { createReloadMetrics } from '../../src/telemetry/reload-metrics.ts';
import { createUpstreamMetrics, type UpstreamLoad } from '../../src/telemetry/upstream-metrics.ts';

async function lines(registry: Registry, start: string): Promise<string[]> {
  return (await registry.metrics()).split('\n').filter((line) => line.startsWith(start));
}

const IDLE: UpstreamLoad = { id: 'files', isRequired: false, inFlight: 0, queued: 0, connections: 0 };

test('the counters of an upstream begin at 0, so that its first event is an increase', async () => {
  const registry = new Registry();
  const metrics = createUpstreamMetrics(registry);
  metrics.addUpstream('files');

  assert.deepEqual(await lines(registry, 'linkspan_upstream_restarts_total'), [
    'linkspan_upstream_restarts_total{upstream="files"} 0',
  ]);
  assert.deepEqual(await lines(registry, 'linkspan_upstream_start_failures_total'), [
    'linkspan_upstream_start_failures_total{upstream="files"} 0',
  ]);
  assert.equal((await lines(registry, 'linkspan_upstream_state_lost_total')).length, 5);
});

test('the load of an upstream that is gone is not shown any longer', async () => {
  const registry = new Registry();
  const metrics = createUpstreamMetrics(registry);
  metrics.setUpstreamLoads([IDLE, { ...IDLE, id: 'mail', queued: 3 }]);
  metrics.setUpstreamLoads([{ ...IDLE, isRequired: true, processes: 2, memoryBytes: 4_096 }]);

  assert.deepEqual(await lines(registry, 'linkspan_upstream_requests_queued'), [
    'linkspan_upstream_requests_queued{upstream="files"} 0',
  ]);
  assert.deepEqual(await lines(registry, 'linkspan_upstream_required'), [
    'linkspan_upstream_required{upstream="files"} 1',
  ]);
  assert.deepEqual(await lines(registry, 'linkspan_upstream_memory_bytes'), [
    'linkspan_upstream_memory_bytes{upstream="files"} 4096',
  ]);
});

test('a removed upstream has no series, and the others keep theirs', async () => {
  const registry = new Registry();
  const metrics = createUpstreamMetrics(registry);
  const eras = { legacy: { speaks: 'yes' }, modern: { speaks: 'no' } } as const;
  for (const id of ['files', 'mail']) {
    metrics.addUpstream(id);
    metrics.setUpstreamState(id, 'ready');
    metrics.setUpstreamEras(id, eras);
    metrics.recordListing(id, 1);
    metrics.countDropped('log-unattributable', id);
  }
  const before = (await lines(registry, 'linkspan')).filter((line) => line.includes('"mail"'));
  metrics.removeUpstream('files');

  assert.deepEqual(await lines(registry, 'linkspan'), before);
  metrics.setUpstreamState('files', 'ready');
  assert.deepEqual(await lines(registry, 'linkspan_upstream_up{upstream="files"}'), [
    'linkspan_upstream_up{upstream="files"} 1',
  ]);
});

test('upstreams beyond the bound of the label are added up', async () => {
  const registry = new Registry();
  const metrics = createUpstreamMetrics(registry);
  metrics.setUpstreamLoads(Array.from({ length: 300 }, (_, i) => ({ ...IDLE, id: `u${i}`, inFlight: 1 })));

  const found = await lines(registry, 'linkspan_upstream_requests_in_flight');
  assert.equal(found.length, 257);
  assert.ok(found.includes('linkspan_upstream_requests_in_flight{upstream="_other"} 44'), found.join('\n'));
});

test('a rejected reload leaves the time of the last successful one', async () => {
  const registry = new Registry();
  const metrics = createReloadMetrics(registry);
  metrics.recordStart(1_000);
  metrics.countReload('applied', 4_000);
  metrics.countReload('unchanged', 5_000);
  metrics.countReload('rejected', 9_000);

  assert.deepEqual(await lines(registry, 'linkspan_config'), [
    'linkspan_config_reloads_total{outcome="applied"} 1',
    'linkspan_config_reloads_total{outcome="unchanged"} 1',
    'linkspan_config_reloads_total{outcome="rejected"} 1',
    'linkspan_config_last_reload_successful 0',
    'linkspan_config_last_reload_success_timestamp_seconds 5',
    'linkspan_config_last_good_upstreams 0',
  ]);
});

test('a start with the last good upstreams is no success, until a config is accepted', async () => {
  const registry = new Registry();
  const metrics = createReloadMetrics(registry);
  const state = async () => (await lines(registry, 'linkspan_config_last')).map((line) => line.split(' ')[1]);
  metrics.recordStart(9_000, 2_000);
  assert.deepEqual(await state(), ['0', '2', '1']);
  metrics.countReload('rejected', 10_000);
  assert.deepEqual(await state(), ['0', '2', '1']);
  metrics.countReload('unchanged', 11_000);
  assert.deepEqual(await state(), ['1', '11', '0']);
});

test('dropped messages are counted by their upstream, if there is one', async () => {
  const registry = new Registry();
  const metrics = createUpstreamMetrics(registry);
  for (const id of ['files', 'files', 'mail']) metrics.countDropped('log-unattributable', id);
  metrics.countDropped('slow-client');
  assert.deepEqual(await lines(registry, 'linkspan_dropped_messages_total'), [
    'linkspan_dropped_messages_total{upstream="files",reason="log-unattributable"} 2',
    'linkspan_dropped_messages_total{upstream="mail",reason="log-unattributable"} 1',
    'linkspan_dropped_messages_total{reason="slow-client"} 1',
  ]);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createMetrics } from '../../src/telemetry/metrics.ts';
import type { Operation } from '../../src/telemetry/operation.ts';

const CALL: Operation = { method: 'tools/call', tool: 'files__read', revision: '2025-11-25', transport: 'tcp' };

async function lines(metrics: { text(): Promise<string> }, start: string): Promise<string[]> {
  return (await metrics.text()).split('\n').filter((line) => line.startsWith(start));
}

test('a served request is counted with its labels and falls into its bucket', async () => {
  const metrics = createMetrics('1.2.3');
  metrics.recordRequest(CALL, 0.03);
  metrics.recordRequest(CALL, 0.03);

  const labels =
    'mcp_method_name="tools/call",gen_ai_tool_name="files__read",error_type="",mcp_protocol_version="2025-11-25",network_transport="tcp"';
  const found = await lines(metrics, 'mcp_server_operation_duration_seconds');
  assert.ok(found.includes(`mcp_server_operation_duration_seconds_count{${labels}} 2`), found.join('\n'));
  assert.ok(found.includes(`mcp_server_operation_duration_seconds_bucket{le="0.02",${labels}} 0`), found.join('\n'));
  assert.ok(found.includes(`mcp_server_operation_duration_seconds_bucket{le="0.05",${labels}} 2`), found.join('\n'));
});

test('a request to an upstream is counted under that upstream', async () => {
  const metrics = createMetrics('1.2.3');
  metrics.recordUpstreamRequest('files', { ...CALL, error: 'upstream-timeout', transport: 'pipe' }, 60);

  const [count = ''] = await lines(metrics, 'mcp_client_operation_duration_seconds_count');
  assert.match(count, /upstream="files"/);
  assert.match(count, /error_type="upstream-timeout"/);
  assert.match(count, /network_transport="pipe"/);
});

test('an unknown method is counted as _other', async () => {
  const metrics = createMetrics('1.2.3');
  for (let i = 0; i < 5_000; i++) {
    metrics.recordRequest({ method: `tools/call-${i}`, revision: '2025-11-25', transport: 'tcp' }, 0.001);
  }

  const counts = await lines(metrics, 'mcp_server_operation_duration_seconds_count');
  assert.equal(counts.length, 1);
  assert.match(counts.join(''), /mcp_method_name="_other".* 5000$/);
});

test('tool names beyond the limit share one series, earlier ones keep theirs', async () => {
  const metrics = createMetrics('1.2.3');
  for (let i = 0; i < 1_000; i++) metrics.recordRequest({ ...CALL, tool: `files__t${i}` }, 0.001);
  metrics.recordRequest({ ...CALL, tool: 'files__t0' }, 0.001);

  const counts = await lines(metrics, 'mcp_server_operation_duration_seconds_count');
  assert.equal(counts.length, 257);
  assert.match(counts.find((line) => line.includes('"files__t0"')) ?? '', / 2$/);
  assert.match(counts.find((line) => line.includes('"_other"')) ?? '', / 744$/);
});

test('the series of a histogram are bounded, whatever the labels', async () => {
  const metrics = createMetrics('1.2.3');
  const revisions = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];
  const errors = ['tool_error', 'rpc_error', 'upstream-lost', 'upstream-timeout', 'draining', 'overloaded'] as const;
  for (let i = 0; i < 256; i++) {
    for (const revision of revisions) {
      for (const error of errors) metrics.recordRequest({ ...CALL, tool: `t${i}`, revision, error }, 0.001);
    }
  }

  const counts = await lines(metrics, 'mcp_server_operation_duration_seconds_count');
  assert.ok(counts.length <= 2_100, `${counts.length} series`);
});

test('levels go up and down, and are read at each scrape', async () => {
  const metrics = createMetrics('1.2.3');
  metrics.sessions.add();
  metrics.sessions.add();
  metrics.sessions.remove();
  metrics.streams.get.add();

  assert.deepEqual(await lines(metrics, 'linkspan_sessions'), ['linkspan_sessions 1']);
  assert.deepEqual(await lines(metrics, 'linkspan_streams'), [
    'linkspan_streams{kind="post"} 0',
    'linkspan_streams{kind="get"} 1',
    'linkspan_streams{kind="sse"} 0',
  ]);
});

test('an upstream is in one state at a time, and up while it serves', async () => {
  const metrics = createMetrics('1.2.3');
  const seen: string[][] = [];
  for (const state of ['starting', 'ready', 'degraded', 'degraded', 'failed']) {
    metrics.setUpstreamState('files', state);
    seen.push(await lines(metrics, 'linkspan_upstream_'));
  }

  assert.deepEqual(
    seen.map((found) => found.map((line) => line.replace('upstream="files"', '').replace('linkspan_upstream_', ''))),
    [
      ['up{} 0', 'state_info{,state="starting"} 1'],
      ['up{} 1', 'state_info{,state="ready"} 1'],
      ['up{} 1', 'state_info{,state="degraded"} 1'],
      ['up{} 1', 'state_info{,state="degraded"} 1'],
      ['up{} 0', 'state_info{,state="failed"} 1'],
    ],
  );
});

test('the number of reasons is bounded', async () => {
  const metrics = createMetrics('1.2.3');
  for (let i = 0; i < 100; i++) metrics.countAuthFailure(`reason-${i}`);

  const found = await lines(metrics, 'linkspan_auth_failures_total');
  assert.equal(found.length, 65);
  assert.ok(found.includes('linkspan_auth_failures_total{reason="_other"} 36'), found.join('\n'));
});

test('the merged endpoint and the version are there', async () => {
  const metrics = createMetrics('1.2.3');
  metrics.setCatalogTools('', 'legacy', { tools: 12, tokens: 3_400 });
  metrics.setCatalogTools('files', 'modern', { tools: 5, tokens: 900 });

  assert.deepEqual(await lines(metrics, 'linkspan_catalog_tools'), [
    'linkspan_catalog_tools{view="_merged",era="legacy"} 12',
    'linkspan_catalog_tools{view="files",era="modern"} 5',
  ]);
  assert.deepEqual(await lines(metrics, 'linkspan_catalog_tokens'), [
    'linkspan_catalog_tokens{view="_merged",era="legacy"} 3400',
    'linkspan_catalog_tokens{view="files",era="modern"} 900',
  ]);
  assert.deepEqual(await lines(metrics, 'linkspan_build_info'), [
    'linkspan_build_info{version="1.2.3",commit="unknown"} 1',
  ]);
});

test('only a registry that is asked to measures the process itself', async () => {
  const metrics = createMetrics('1.2.3');
  assert.deepEqual([await lines(metrics, 'process_'), await lines(metrics, 'nodejs_')], [[], []]);
  metrics.addProcess();
  assert.equal((await lines(metrics, 'process_cpu_seconds_total')).length, 1);
});

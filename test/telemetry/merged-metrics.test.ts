import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countersOf, mergedMetrics } from '../../src/telemetry/merged-metrics.ts';
import type { Operation } from '../../src/telemetry/operation.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';

const text = (calls: number, sessions: number, ready: number, lag: number) => `# HELP linkspan_calls_total Calls.
# TYPE linkspan_calls_total counter
linkspan_calls_total{tool="a b}"} ${calls}
linkspan_calls_total{tool="c"} 1
# HELP linkspan_sessions Sessions.
# TYPE linkspan_sessions gauge
linkspan_sessions ${sessions}
# HELP linkspan_ready Ready.
# TYPE linkspan_ready gauge
linkspan_ready ${ready}
# HELP linkspan_loop_delay_seconds Delay.
# TYPE linkspan_loop_delay_seconds gauge
linkspan_loop_delay_seconds ${lag}
`;

test('counters and levels are added up, and readiness is that of the last one', () => {
  const merged = mergedMetrics([text(2, 3, 1, 0.5), text(40, 4, 0, 0.25), '']);
  assert.equal(merged, text(42, 7, 0, 0.5).replace('{tool="c"} 1', '{tool="c"} 2'));
});

test('the counters of a process that has ended go on to count, and its levels do not', () => {
  const merged = mergedMetrics([text(2, 3, 1, 0.5), countersOf(text(40, 4, 0, 9))]);
  assert.equal(merged, text(42, 3, 1, 0.5).replace('{tool="c"} 1', '{tool="c"} 2'));
});

test('the outcome of the last reload is that of the parent, not of its workers', async () => {
  const [worker, parent] = [createMetrics('1.2.3', 'abc'), createMetrics('1.2.3', 'abc')];
  const merged = async () => {
    const texts = [await worker.text(), await parent.text(), countersOf(await worker.text())];
    const lines = mergedMetrics(texts).split('\n');
    return lines.filter((line) => line.startsWith('linkspan_config_last_')).map((line) => Number(line.split(' ')[1]));
  };
  parent.recordStart(1_000);
  worker.recordStart(2_000);
  assert.deepEqual(await merged(), [1, 1, 0]);
  parent.countReload('rejected', 3_000);
  assert.deepEqual(await merged(), [0, 1, 0]);
  parent.countReload('applied', 4_000);
  worker.recordStart(5_000);
  assert.deepEqual(await merged(), [1, 4, 0]);
});

test('open files are compared with the limit in the process that has most of them', () => {
  const files = (open: number) => `# HELP process_open_fds Open.
# TYPE process_open_fds gauge
process_open_fds ${open}
# HELP process_max_fds Most.
# TYPE process_max_fds gauge
process_max_fds 1024
`;
  assert.equal(mergedMetrics([files(500), files(700), files(30)]), files(700));
});

test('the metrics of one process are the same after a merge, histograms included', async () => {
  const metrics = createMetrics('1.2.3', 'abc');
  const operation: Operation = {
    method: 'tools/call',
    tool: 'a"\\\n',
    error: undefined,
    revision: '2025-11-25',
    transport: 'tcp',
  };
  metrics.recordRequest(operation, 0.03);
  metrics.recordRequest(operation, 400);
  const own = await metrics.text();
  const lines = (each: string) => each.split('\n').filter((line) => line !== '' && !/ nan$/i.test(line));
  assert.deepEqual(lines(mergedMetrics([own])), lines(own));
  const twice = mergedMetrics([own, own]);
  const counts = twice.split('\n').filter((line) => line.startsWith('mcp_server_operation_duration_seconds_count'));
  assert.equal(counts.length, 1);
  assert.match(counts[0] ?? '', / 4$/);
});

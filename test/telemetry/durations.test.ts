import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Durations } from '../../src/telemetry/durations.ts';
import type { Operation } from '../../src/telemetry/operation.ts';

const CALL: Operation = { method: 'tools/call', tool: 'echo', revision: '2025-11-25', transport: 'tcp' };

function durationsOf() {
  const durations = new Durations('d_seconds', 'Durations.');
  /** Returns the values of the lines that contain all of these texts. */
  const values = async (...texts: readonly string[]): Promise<number[]> =>
    (await durations.text())
      .split('\n')
      .filter((line) => texts.every((text) => line.includes(text)))
      .map((line) => Number(line.split(' ').at(-1)));
  return { durations, values };
}

test('an observation counts in its bucket and all larger ones', async () => {
  const { durations, values } = durationsOf();
  for (const seconds of [0.01, 0.3, 400]) durations.observe(CALL, seconds);
  assert.deepEqual(await values('d_seconds_bucket'), [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
  assert.deepEqual(await values('d_seconds_count'), [3]);
  assert.deepEqual(await values('d_seconds_sum'), [400.31]);
});

test('each outcome, revision, transport and upstream has a series of its own', async () => {
  const { durations, values } = durationsOf();
  for (let n = 0; n < 2; n++) {
    durations.observe(CALL, 1);
    durations.observe({ ...CALL, error: 'tool_error' }, 1);
    durations.observe({ ...CALL, revision: '2025-06-18' }, 1);
    durations.observe({ ...CALL, transport: 'pipe' }, 1);
    durations.observe(CALL, 1, 'files');
  }
  assert.deepEqual(await values('d_seconds_count'), [2, 2, 2, 2, 2]);
  assert.deepEqual(await values('d_seconds_count', 'error_type="tool_error"'), [2]);
  assert.deepEqual(await values('d_seconds_count', 'upstream="files"'), [2]);
});

test('a tool and a method of the same name have a series each', async () => {
  const { durations, values } = durationsOf();
  for (let n = 0; n < 2; n++) {
    durations.observe({ ...CALL, tool: 'ping' }, 1);
    durations.observe({ ...CALL, tool: undefined, method: 'ping' }, 1);
  }
  assert.deepEqual(await values('d_seconds_count', 'mcp_method_name="tools/call"', 'gen_ai_tool_name="ping"'), [2]);
  assert.deepEqual(await values('d_seconds_count', 'mcp_method_name="ping"', 'gen_ai_tool_name=""'), [2]);
});

// G5
test('invented methods share a series, and so do tools beyond the bound', async () => {
  const { durations, values } = durationsOf();
  for (let n = 0; n < 400; n++) {
    durations.observe({ method: `invented/${n}`, revision: '2025-11-25', transport: 'tcp' }, 1);
    durations.observe({ ...CALL, tool: `tool_${n}` }, 1);
  }
  assert.deepEqual(await values('d_seconds_count', 'mcp_method_name="_other"'), [400]);
  assert.deepEqual(await values('d_seconds_count', 'gen_ai_tool_name="_other"'), [400 - 256]);
  assert.equal((await values('d_seconds_count')).length, 1 + 256 + 1);
});

test('label values are escaped', async () => {
  const { durations } = durationsOf();
  durations.observe({ ...CALL, tool: 'a"b\\c\nd' }, 1);
  assert.match(await durations.text(), /gen_ai_tool_name="a\\"b\\\\c\\nd"/);
});

// G5
test('whatever is observed, there are at most 1 400 series', async () => {
  const { durations, values } = durationsOf();
  for (let tool = 0; tool < 300; tool++) {
    for (const error of [undefined, 'tool_error', 'rpc_error', 'overloaded', 'upstream-timeout'] as const) {
      for (const revision of ['2025-06-18', '2025-11-25']) {
        durations.observe({ ...CALL, tool: `tool_${tool}`, error, revision }, 1, `up_${tool}`);
      }
    }
  }
  for (const method of ['prompts/get', 'resources/read', 'tools/list', 'ping']) {
    for (let n = 0; n < 300; n++)
      durations.observe({ ...CALL, tool: undefined, method, revision: `r${n}` }, 1, `up_${n}`);
  }
  const counts = await values('d_seconds_count');
  assert.ok(counts.length <= 1_400, `${counts.length} series`);
  assert.equal(
    counts.reduce((sum, count) => sum + count),
    300 * 10 + 4 * 300,
  );
});

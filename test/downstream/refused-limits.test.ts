import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import { initialize, post } from './client.ts';
import { startEdge } from './edge.ts';

const OPTIONS = { timeout: 120_000 };

const deep = `${'['.repeat(LIMITS.jsonDepth + 1)}${']'.repeat(LIMITS.jsonDepth + 1)}`;
const members = Array.from({ length: LIMITS.clientObjectMembers + 1 }, (_, n) => `"k${n}":0`).join(',');

const cases = [
  { limit: 'jsonDepth', id: '1', params: `{"a":${deep}}` },
  { limit: 'clientObjectMembers', id: '1', params: `{${members}}` },
  { limit: 'clientMessageValues', id: '1', params: `{"a":[${'0,'.repeat(LIMITS.clientMessageValues)}0]}` },
  { limit: 'requestIdChars', id: `"${'x'.repeat(LIMITS.requestIdChars)}"`, params: '{}' },
];

for (const { limit, id, params } of cases) {
  // N-27
  test(`a message that exceeds ${limit} is refused and counted`, OPTIONS, async () => {
    await using edge = await startEdge();
    const session = await initialize(`${edge.url}/mcp`);
    const message = `{"jsonrpc":"2.0","id":${id},"method":"ping","params":${params}}`;
    const { status } = await post(`${edge.url}/mcp`, message, session);
    assert.equal(status, 400);
    const counted = new RegExp(`^linkspan_limit_reached_total\\{limit="${limit}"\\} 1$`, 'm');
    assert.match(await edge.metrics.text(), counted);
  });
}

// N-27
test('each item of a batch that exceeds a bound is counted', OPTIONS, async () => {
  await using edge = await startEdge();
  const session = await initialize(`${edge.url}/mcp`, '2025-03-26');
  const item = `{"jsonrpc":"2.0","id":"${'x'.repeat(LIMITS.requestIdChars)}","method":"ping"}`;
  const { status } = await post(`${edge.url}/mcp`, `[${item},${item}]`, session);
  assert.equal(status, 200);
  assert.match(await edge.metrics.text(), /^linkspan_limit_reached_total\{limit="requestIdChars"\} 2$/m);
});

test('limit batchMessages: a longer batch is refused as a whole', OPTIONS, async () => {
  await using edge = await startEdge();
  const session = await initialize(`${edge.url}/mcp`, '2025-03-26');
  const batchOf = (count: number) =>
    `[${Array.from({ length: count }, (_, n) => `{"jsonrpc":"2.0","id":${n},"method":"ping"}`).join(',')}]`;
  assert.equal((await post(`${edge.url}/mcp`, batchOf(LIMITS.batchMessages), session)).status, 200);
  const { status, text } = await post(`${edge.url}/mcp`, batchOf(LIMITS.batchMessages + 1), session);
  assert.equal(status, 400);
  assert.match(text, /-32600/);
  assert.match(await edge.metrics.text(), /^linkspan_limit_reached_total\{limit="batchMessages"\} 1$/m);
});

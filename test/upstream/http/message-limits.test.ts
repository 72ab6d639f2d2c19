import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { ReceivingBudget } from '../../../src/upstream/rpc/receiving-budget.ts';
import { connect, event, json, serve, stream } from '../../fixtures/servers/http-harness.ts';

const LIMIT = { timeout: 120_000 };

const deep = `${'['.repeat(LIMITS.jsonDepth + 1)}${']'.repeat(LIMITS.jsonDepth + 1)}`;
const answer = (id: unknown): string => `{"jsonrpc":"2.0","id":${String(id)},"result":{"a":${deep}}}`;

for (const form of ['json', 'events'] as const) {
  // N-27
  test(`an answer that exceeds a bound fails its request and is counted (${form})`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (form === 'json') json(response, answer(request.id));
      else {
        stream(response, event(answer(request.id)));
        response.end();
      }
    });
    const limits: LimitName[] = [];
    await using peer = await connect(server.url, { onLimit: (limit) => limits.push(limit) });
    peer.request(2);
    assert.equal((await peer.failure(2)).code, 'upstream-protocol');
    assert.deepEqual(limits, ['jsonDepth']);
  });
}

const TEXT = 'x'.repeat(500_000);

/** Answers with a large text that is compressed, without its last bytes. */
function compressed(response: ServerResponse, id: unknown, missingBytes = 0): void {
  const body = brotliCompressSync(`{"jsonrpc":"2.0","id":${String(id)},"result":{"text":"${TEXT}"}}`);
  response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'br' });
  response.end(body.subarray(0, body.length - missingBytes));
}

// N-27
test('a compressed answer takes room for the bytes that it decompresses to', LIMIT, async () => {
  await using server = await serve((request, response) => compressed(response, request.id));
  let heldCount = 0;
  const receiving = new ReceivingBudget(200_000, () => heldCount++);
  await using peer = await connect(server.url, { receiving });
  const ids = [2, 3, 4];
  for (const id of ids) peer.request(id);
  for (const answer of await Promise.all(ids.map((id) => peer.answer(id)))) {
    assert.equal(answer.kind === 'result' && answer.result.includes(TEXT), true);
  }
  assert.ok(heldCount > 0);
  assert.equal(receiving.bytes, 0);
});

// REL-17
test('a large compressed answer that breaks off fails its request', LIMIT, async () => {
  await using server = await serve((request, response) => compressed(response, request.id, 1));
  await using peer = await connect(server.url);
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-protocol');
  assert.match(error.message, /compressed its answer unasked, and it cannot be read/);
});

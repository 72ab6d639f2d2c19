import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
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

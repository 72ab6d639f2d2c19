import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Principal } from '../../src/policy/principal.ts';
import { testCore } from '../support/core.ts';
import { modernUpstream } from '../support/http-upstream.ts';
import { type ModernReply, modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const [ALICE, BOB] = ['alice', 'bob'].map((key): Principal => ({ key, label: key, scopes: [] }));
const PUBLIC = { ttlMs: 60_000, cacheScope: 'public' };

function library() {
  return modernUpstream({
    resources: [{ uri: 'lib://a', name: 'a' }],
    caching: PUBLIC,
    answers: {
      'resources/read': () => ({ resultType: 'complete', contents: [{ uri: 'lib://a', text: 'a' }], ...PUBLIC }),
    },
  });
}

for (const [isolation, reads] of [
  ['session', 2],
  ['shared', 1],
] as const) {
  // SEC-39 N-33
  test(`isolation ${isolation}: a public result is private with authentication, ${reads} reads`, TIMEOUT, async () => {
    await using upstream = await library();
    await using gateway = await testCore({ up: { ...upstream.config, rawUris: true, isolation } });
    for (const principal of [ALICE, BOB, ALICE, BOB]) {
      assert.ok(principal !== undefined);
      for (const method of ['server/discover', 'resources/list', 'resources/read']) {
        const params = method === 'resources/read' ? { uri: 'lib://a' } : {};
        const reply: ModernReply = await modernRequest(gateway, method, params, { principal }).reply;
        assert.equal(reply.result?.['cacheScope'], 'private', method);
      }
    }
    assert.equal(upstream.requests('resources/read').length, reads);
    const anonymous: ModernReply = await modernRequest(gateway, 'resources/read', { uri: 'lib://a' }).reply;
    assert.equal(anonymous.result?.['cacheScope'], 'public');
  });
}

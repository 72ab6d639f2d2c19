import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_FEATURES } from '../../src/upstream/link/link.ts';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';

test('a process whose listing lasted too long for one client serves the next', { timeout: 120_000 }, async () => {
  const held = Promise.withResolvers<void>();
  const memory = memoryUpstream({ hold: () => held.promise });
  await using at = new GatewayParts({ up: { memory } });
  const upstream = at.upstream('up');
  const listing = upstream.refresh('legacy', NO_FEATURES, '');
  await memory.until(() => memory.requests('tools/list')[0]);
  const [first] = memory.peers;
  await upstream.link(at.session().session);
  assert.equal(memory.starts, 2);
  held.resolve();
  await listing;
  await upstream.refresh('legacy', NO_FEATURES, '');
  await upstream.link(at.session().session);
  assert.equal(memory.starts, 2);
  assert.equal(
    first?.received.filter((message) => message.kind === 'request' && message.method === 'tools/list').length,
    2,
  );
});

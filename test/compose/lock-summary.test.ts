import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lockSummary } from '../../src/compose/lock-summary.ts';
import { NO_FEATURES } from '../../src/upstream/link/link.ts';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { lockOf } from '../support/pins.ts';

const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });
const LOCK = lockOf({ up: { tools: [tool('pinned')] } }, 'quarantine');

// SEC-33
test('the line for the start names the lists that it is about', async () => {
  const memory = memoryUpstream({ lists: { tools: [tool('pinned'), tool('added')] } });
  await using at = new GatewayParts({ up: { memory } }, {}, { lock: LOCK });
  assert.equal(lockSummary(at.config, at), 'linkspan.lock, quarantine', 'no list is known');
  await at.upstream('up').refresh('legacy', NO_FEATURES, '');
  assert.equal(
    lockSummary(at.config, at),
    'linkspan.lock, quarantine; definitions that differ in the lists known so far: up 1 (1 items withheld)',
  );
  assert.equal(lockSummary({ lock: undefined }, at), undefined);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commonKey, EMPTY_OFFER } from '../../../src/catalog/offer.ts';
import { ListAges } from '../../../src/gateway/lists/list-ages.ts';
import { ListedUpstreams, REMOTE } from '../../support/listed-upstreams.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const COMMON = commonKey('legacy');

test('lists are fresh for a part of the time that they state, which is what is left', async (t) => {
  const time = stopTime(t);
  await using at = await ListedUpstreams.open({ up: { memory: memoryUpstream({}), target: REMOTE } });
  const ages = new ListAges(at.offers, at.records);
  const up = at.upstream('up');
  assert.deepEqual([ages.areFresh(up, COMMON), ages.leftMs(up, COMMON)], [false, Infinity], 'never listed');
  const caching = { ttlMs: 60_000, isPublic: false };
  at.offers.update('up', COMMON, { ...EMPTY_OFFER, revision: '2025-11-25', caching });
  assert.deepEqual([ages.areFresh(up, COMMON), ages.leftMs(up, COMMON)], [true, 48_000]);
  time.pass(48_000);
  assert.deepEqual([ages.areFresh(up, COMMON), ages.leftMs(up, COMMON)], [false, 5_000], 'are being fetched');
});

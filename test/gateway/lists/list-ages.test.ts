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

test('a reading that states another time is no change, and its time counts', async (t) => {
  const time = stopTime(t);
  await using at = await ListedUpstreams.open({ up: { memory: memoryUpstream({}), target: REMOTE } });
  const ages = new ListAges(at.offers, at.records);
  const up = at.upstream('up');
  const listed = (ttlMs: number) => {
    const caching = { ttlMs, isPublic: false };
    return at.offers.update('up', COMMON, { ...EMPTY_OFFER, revision: '2025-11-25', caching });
  };
  assert.equal(listed(60_000), true);
  const { version } = at.offers;
  assert.equal(listed(20_000), false);
  assert.equal(ages.leftMs(up, COMMON), 16_000);
  time.pass(10_000);
  assert.equal(listed(100_000), false);
  assert.equal(ages.leftMs(up, COMMON), 80_000);
  assert.equal(at.offers.version, version);
  assert.equal(listed(0), true, 'may not be cached any more');
  assert.equal(ages.leftMs(up, COMMON), Infinity);
});

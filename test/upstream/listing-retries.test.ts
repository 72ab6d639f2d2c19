import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { type ClientFeatures, NO_FEATURES } from '../../src/upstream/link/link.ts';
import { ListingRetries } from '../../src/upstream/listing-retries.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

function kind(capabilityKey: string): ClientFeatures {
  return { clientCapabilities: RawObject.EMPTY, capabilityKey };
}

/** The retries of an upstream whose listings for these kinds fail. */
function retries(failing: ReadonlySet<string>, waitMs = () => 0) {
  const listed: string[] = [];
  const all = new ListingRetries({
    refresh: async (era, features) => {
      listed.push(features.capabilityKey);
      if (!failing.has(features.capabilityKey)) return;
      all.add(era, features);
      throw new Error('not yet');
    },
    waitMs,
    signal: new AbortController().signal,
  });
  return { all, listed };
}

// N-62
test('listings for all kinds of clients are repeated, beyond eight for all clients', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { all, listed } = retries(new Set());
  for (let n = 1; n <= 10; n++) all.add('legacy', kind(`${n}`));
  await time.passUntil(
    waitUntil(() => listed.length === 9),
    100,
  );
  assert.deepEqual(listed, ['1', '2', '3', '4', '5', '6', '7', '8', NO_FEATURES.capabilityKey]);
});

// N-62
test('a listing that goes on failing does not keep others from being repeated', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const failing = new Set(['a']);
  const { all, listed } = retries(failing);
  all.add('legacy', kind('a'));
  all.add('legacy', kind('b'));
  await time.passUntil(
    waitUntil(() => listed.length === 3),
    100,
  );
  assert.deepEqual(listed, ['a', 'b', 'a']);
  failing.clear();
  await time.passUntil(
    waitUntil(() => listed.length === 4),
    100,
  );
  all.add('legacy', kind('c'));
  await time.passUntil(
    waitUntil(() => listed.length === 5),
    100,
  );
  assert.deepEqual(listed.slice(3), ['a', 'c']);
});

// N-62
test('lists that were read meanwhile are not read again', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { all, listed } = retries(new Set());
  all.add('legacy', kind('a'));
  all.add('legacy', kind('b'));
  all.remove('legacy', kind('a'));
  await time.passUntil(
    waitUntil(() => listed.length > 0),
    100,
  );
  assert.deepEqual(listed, ['b']);
});

// N-62
test('lists are read after a pause, also if it was prolonged meanwhile', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let waits = 0;
  // It is asked for before the first sleep, and after each.
  const waitMs = () => (++waits <= 3 ? 10_000 : 0);
  const { all, listed } = retries(new Set(), waitMs);
  all.add('legacy', kind('a'));
  await time.passUntil(
    waitUntil(() => listed.length > 0),
    100,
  );
  assert.deepEqual([listed, waits], [['a'], 4]);
});

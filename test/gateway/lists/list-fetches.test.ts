import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fetchIdOf, ListFetches, type ListingClient, offerKeyFor } from '../../../src/gateway/lists/list-fetches.ts';
import { NO_FEATURES } from '../../../src/upstream/link/link.ts';
import { ListedUpstreams } from '../../support/listed-upstreams.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const CLIENT: ListingClient = { era: 'legacy', principal: '', ...NO_FEATURES };

test('requests for the same lists share a fetch, whose outcome is recorded', async () => {
  for (const isListed of [true, false]) {
    const start = () => (isListed ? Promise.resolve() : Promise.reject(new Error('does not start')));
    const memory = memoryUpstream({ start });
    await using at = await ListedUpstreams.open({ up: { memory } });
    const done: string[] = [];
    const fetches = new ListFetches(
      at.records,
      (id) => done.push(id),
      () => undefined,
    );
    const up = at.upstream('up');
    const id = fetchIdOf(up, offerKeyFor(up, CLIENT));
    const fetched = fetches.fetch(up, CLIENT);
    assert.equal(fetches.fetch(up, CLIENT, 'now'), fetched);
    assert.equal(fetches.running(up, id), fetched);
    assert.equal(await fetched, isListed);
    assert.equal(fetches.running(up, id), undefined);
    assert.deepEqual([at.records.hasFailed('up'), done], [!isListed, isListed ? [id] : []]);
  }
});

test('a fetch begins in the turn of any principal that needs it', async () => {
  const starting = Promise.withResolvers<void>();
  const memory = memoryUpstream({ start: () => starting.promise });
  await using at = await ListedUpstreams.open({ up: { memory } });
  const fetches = new ListFetches(
    at.records,
    () => undefined,
    () => undefined,
  );
  const up = at.upstream('up');
  const of = (principal: string, n: number) =>
    fetches.fetch(up, { ...CLIENT, principal, capabilityKey: `c${n}` }, 'now');
  // More than are fetched at a time.
  const many = Array.from({ length: 64 }, (_, n) => of('ann', n));
  const order: string[] = [];
  void of('ann', 62).then(() => order.push('ann'));
  void of('bob', 63).then(() => order.push('bob'));
  starting.resolve();
  assert.ok((await Promise.all(many)).every(Boolean));
  assert.deepEqual(order, ['bob', 'ann']);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectionQuota } from '../../../src/upstream/quota/connection-quota.ts';
import { ONE_PRINCIPAL } from '../../../src/upstream/quota/fair-pool.ts';
import { remoteConnections, UpstreamQuotas } from '../../../src/upstream/quota/quotas.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { sharesOf } from './shares.ts';

const TIMEOUT = { timeout: 120_000 };
const { signal } = new AbortController();

function quota(limit: number): ConnectionQuota {
  return new ConnectionQuota({ limit, refusal: `all ${limit} are in use`, shares: sharesOf() });
}

function request(principal: string, waitMs = PATIENCE_MS) {
  return { principal, waitMs, signal };
}

// N-03
test('the principal with the fewest connections gets the next one', TIMEOUT, async () => {
  const shared = quota(3);
  const held = [
    await shared.acquire(request('a')),
    await shared.acquire(request('a')),
    await shared.acquire(request('b')),
  ];
  const order: string[] = [];
  const waiting = ['a', 'b', 'c'].map(async (principal) => {
    const permit = await shared.acquire(request(principal));
    order.push(principal);
    return permit;
  });
  for (const permit of held) permit?.release();
  await Promise.all(waiting);
  assert.equal(order[0], 'c');
});

// N-03
test('a request that waited too long is refused, and takes no connection later', TIMEOUT, async () => {
  const shared = quota(1);
  const permit = await shared.acquire(request('a'));
  assert.equal(await shared.acquire(request('b', 1)), undefined);
  permit?.release();
  assert.ok(await shared.acquire(request('b', 1)));
});

// N-03
test('a connection that is given back twice is free once', TIMEOUT, async () => {
  const shared = quota(2);
  const permit = await shared.acquire(request('a'));
  await shared.acquire(request('a'));
  permit?.release();
  permit?.release();
  assert.ok(await shared.acquire(request('b', 1)));
  assert.equal(await shared.acquire(request('b', 1)), undefined);
});

// N-03
test('an abort ends the wait', TIMEOUT, async () => {
  const shared = quota(1);
  await shared.acquire(request('a'));
  const stopping = new AbortController();
  const waiting = shared.acquire({ principal: 'b', waitMs: 60_000, signal: stopping.signal });
  stopping.abort();
  assert.equal(await waiting, undefined);
});

// N-03
test('a waiting request closes a connection without a client, and no other', TIMEOUT, async () => {
  const shared = quota(2);
  const spare = await shared.acquire(request(''));
  await shared.acquire(request('a'));
  let closed = 0;
  shared.join(() => {
    if (closed > 0) return undefined;
    return async () => {
      closed++;
      spare?.release();
    };
  });
  assert.ok(await shared.acquire(request('b')));
  assert.equal(await shared.acquire(request('c', 1)), undefined);
  assert.equal(closed, 1);
});

// N-03
test('after a refusal of one quota, the others get their connections back', TIMEOUT, async () => {
  const shared = quota(0);
  const quotas = new UpstreamQuotas('up', 1, shared, ONE_PRINCIPAL, () => undefined);
  await assert.rejects(quotas.acquire(request('a', 1)), { code: 'overloaded', message: /all 0/ });
  shared.setLimit({ limit: 1, refusal: 'all 1 are in use' });
  assert.ok(await quotas.acquire(request('a', 1)));
});

// N-60
test('open files bound the connections to remote upstreams, with a reserve', () => {
  assert.deepEqual([20_000, 4_096, 1_024, 64].map(remoteConnections), [6_581, 1_280, 256, 1]);
});

test('a higher bound serves waiting requests at once, and a lower one closes nothing', TIMEOUT, async () => {
  const shared = quota(1);
  const first = await shared.acquire(request('a'));
  const waiting = [shared.acquire(request('b')), shared.acquire(request('c'))];
  shared.setLimit({ limit: 3, refusal: 'all 3 are in use' });
  const [second, third] = await Promise.all(waiting);
  assert.ok(second !== undefined && third !== undefined);
  shared.setLimit({ limit: 1, refusal: 'all 1 are in use' });
  assert.equal(await shared.acquire(request('d', 1)), undefined);
  first?.release();
  second.release();
  assert.equal(await shared.acquire(request('d', 1)), undefined, 'one is still in use');
  third.release();
  assert.ok(await shared.acquire(request('d', 1)));
});

// N-03
test('the last processes are for principals below their share, which do not wait', TIMEOUT, async () => {
  const shares = sharesOf();
  const processes = new ConnectionQuota({ limit: 16, refusal: 'all 16 are in use', pool: 'processes', shares });
  const held = await Promise.all(Array.from({ length: 14 }, () => processes.acquire(request('greedy'))));
  assert.ok(held.every((permit) => permit !== undefined));
  assert.equal(await processes.acquire(request('greedy', 1)), undefined);
  assert.match(processes.refuse('greedy'), /^you have 14 of 16 processes, and the rest is kept for other clients/);
  assert.deepEqual(shares.refused, ['processes']);
  assert.ok(await processes.acquire(request('modest', 1)));
  assert.ok(await processes.acquire(request('other', 1)));
  assert.equal(processes.refuse('third'), 'all 16 are in use');
});

// N-03
test('a free process goes to the principal below its share first', TIMEOUT, async () => {
  const processes = quota(4);
  const held = await Promise.all(Array.from({ length: 4 }, () => processes.acquire(request('greedy'))));
  const order: string[] = [];
  const waiting = ['greedy', 'greedy', 'modest', 'modest'].map(async (principal) => {
    await processes.acquire(request(principal));
    order.push(principal);
  });
  for (const permit of held) permit?.release();
  await Promise.all(waiting);
  assert.deepEqual(order.slice(0, 2), ['modest', 'modest']);
});

test('a connection that another principal uses from now on counts for it', TIMEOUT, async () => {
  const processes = quota(16);
  const found = await processes.acquire(request(''));
  for (let i = 0; i < 13; i++) await processes.acquire(request('greedy'));
  assert.ok(await processes.acquire(request('', 1)));
  found?.assign('greedy');
  assert.equal(await processes.acquire(request('greedy', 1)), undefined);
  assert.match(processes.refuse('greedy'), /^you have 14 of 16/);
  found?.release();
  found?.release();
  found?.assign('other');
  assert.ok(await processes.acquire(request('other', 1)));
  assert.ok(await processes.acquire(request('third', 1)));
  assert.equal(await processes.acquire(request('fourth', 1)), undefined);
});

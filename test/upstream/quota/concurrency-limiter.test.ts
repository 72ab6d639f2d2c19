import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { ConcurrencyLimiter } from '../../../src/upstream/quota/concurrency-limiter.ts';
import { sharesOf } from './shares.ts';

const WAIT_MS = 60_000;

/** Returns a limiter whose only slot is in use, and the principals admitted so far. */
function busyLimiter(queueLimit: number) {
  const limiter = new ConcurrencyLimiter('up', 1, queueLimit, WAIT_MS);
  assert.equal(limiter.acquire('first'), undefined);
  const admitted: string[] = [];
  const refused: string[] = [];
  const acquire = (principal: string, name = principal) => {
    const ticket = limiter.acquire(principal);
    assert.ok(ticket);
    void ticket.ready.then(
      () => admitted.push(name),
      (error: unknown) => {
        assert.ok(error instanceof GatewayError);
        refused.push(name);
      },
    );
    return ticket;
  };
  /** Ends a request of the first principal, or of the one that was admitted last. */
  const release = async () => {
    limiter.release('first');
    await Promise.resolve();
  };
  return { limiter, acquire, release, admitted, refused };
}

// N-68
test('principals take turns in the queue, even if one sends many requests', async () => {
  const { acquire, release, admitted } = busyLimiter(100);
  for (let i = 1; i <= 3; i++) acquire('ann', `ann ${i}`);
  acquire('bob');
  acquire('cy', 'cy 1');
  acquire('cy', 'cy 2');
  for (let i = 0; i < 6; i++) await release();
  assert.deepEqual(admitted, ['ann 1', 'bob', 'cy 1', 'ann 2', 'cy 2', 'ann 3']);
});

// N-68
test('a full queue accepts a principal that has fewer requests than another', async () => {
  const { limiter, acquire, release, admitted, refused } = busyLimiter(3);
  for (let i = 1; i <= 3; i++) acquire('ann', `ann ${i}`);
  acquire('bob');
  await Promise.resolve();
  assert.deepEqual(refused, ['ann 3']);
  assert.throws(() => limiter.acquire('ann'), { code: 'overloaded' });
  assert.throws(() => limiter.acquire('bob'), { code: 'overloaded' });
  for (let i = 0; i < 3; i++) await release();
  assert.deepEqual(admitted, ['ann 1', 'bob', 'ann 2']);
});

test('a request that leaves the queue makes room for the next', async () => {
  const { limiter, acquire, release, admitted, refused } = busyLimiter(10);
  const ticket = acquire('ann', 'ann 1');
  acquire('ann', 'ann 2');
  ticket.giveUp(new GatewayError('cancelled'));
  await release();
  assert.deepEqual([admitted, refused], [['ann 2'], ['ann 1']]);
  await release();
  assert.equal(limiter.isIdle, true);
});

test('a higher limit admits waiting requests at once, and a lower one ends none', async () => {
  const { limiter, acquire, release, admitted } = busyLimiter(100);
  for (const name of ['a', 'b', 'c']) acquire(name);
  limiter.setLimits(3, 100, WAIT_MS);
  await Promise.resolve();
  assert.deepEqual([admitted, limiter.activeCount, limiter.waitingCount], [['a', 'b'], 3, 1]);
  limiter.setLimits(1, 100, WAIT_MS);
  await release();
  await release();
  assert.deepEqual([admitted, limiter.activeCount], [['a', 'b'], 1], 'two of three must end before another starts');
  await release();
  assert.deepEqual([admitted, limiter.activeCount], [['a', 'b', 'c'], 1]);
  await release();
  assert.equal(limiter.isIdle, true);
});

test('the last eighth of the requests in flight is for principals below their share', async () => {
  const shares = sharesOf();
  const limiter = new ConcurrencyLimiter('up', 16, 10, 1, shares);
  for (let i = 0; i < 14; i++) assert.equal(limiter.acquire('ann'), undefined);
  const ticket = limiter.acquire('ann');
  assert.ok(ticket);
  assert.equal(limiter.acquire('bob'), undefined);
  await assert.rejects(ticket.ready, {
    code: 'overloaded',
    message: /you have 14 of 16 in flight, and the rest is kept/,
  });
  assert.deepEqual(shares.refused, ['requests']);
  limiter.release('ann');
  limiter.release('ann');
  assert.equal(limiter.acquire('ann'), undefined);
});

test('a slot goes to the weightier principal more often', async () => {
  const limiter = new ConcurrencyLimiter('up', 1, 100, WAIT_MS, sharesOf({ ann: 3 }));
  assert.equal(limiter.acquire('first'), undefined);
  const order: string[] = [];
  const ended = Array.from({ length: 8 }, async (_, i) => {
    const principal = i % 2 === 0 ? 'bob' : 'ann';
    await limiter.acquire(principal)?.ready;
    order.push(principal);
    limiter.release(principal);
  });
  limiter.release('first');
  await Promise.all(ended);
  assert.deepEqual(order, ['bob', 'ann', 'ann', 'ann', 'bob', 'ann', 'bob', 'bob']);
});

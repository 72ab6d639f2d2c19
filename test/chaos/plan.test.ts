import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientOf, NONCE, planChaos, REDIS_FAULTS, REPLICA_FAULTS, UPSTREAM_FAULTS, WAYS } from './plan.ts';

const PLANS = Array.from({ length: 200 }, (_, seed) => planChaos(seed + 1));

test('a seed decides all calls and faults', () => {
  assert.deepEqual(planChaos(42), planChaos(42));
  assert.notDeepEqual(planChaos(42), { ...planChaos(43), seed: 42 });
});

test('two hundred seeds have every fault and every way to end a call', () => {
  const faults = new Set(PLANS.flatMap((plan) => plan.faults.map(({ kind }) => kind)));
  assert.deepEqual(faults, new Set([...REPLICA_FAULTS, ...REDIS_FAULTS, ...UPSTREAM_FAULTS]));
  const ways = new Set(PLANS.flatMap((plan) => plan.clients.flatMap(({ calls }) => calls.map(({ way }) => way))));
  assert.deepEqual(ways, new Set(WAYS));
});

test('every call has a nonce of its own that names its client', () => {
  for (const { clients } of PLANS) {
    const calls = clients.flatMap((client) => client.calls.map((call) => ({ client: client.name, ...call })));
    assert.equal(new Set(calls.map(({ nonce }) => nonce)).size, calls.length);
    for (const { client, nonce } of calls) {
      assert.equal(clientOf(nonce), client);
      assert.deepEqual(`x${nonce}x`.match(NONCE), [nonce]);
    }
  }
});

test('two faults of one target do not overlap', () => {
  for (const { faults } of PLANS) {
    for (const [index, fault] of faults.entries()) {
      const target = targetOf(fault);
      const later = faults.slice(index + 1).filter((other) => targetOf(other) === target);
      for (const { atMs } of later) assert.ok(atMs >= fault.untilMs, target);
    }
  }
});

function targetOf(fault: object): string {
  const { replica, upstream } = Object(fault);
  return `${replica ?? upstream ?? 'Redis'}`;
}

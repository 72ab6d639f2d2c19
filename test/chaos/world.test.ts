import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MISSING } from '../support/replicas.ts';
import { childrenOf } from '../support/stdio.ts';
import { LoopbackNetwork, type Place } from './network.ts';
import { World } from './world.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };

/** A network in which a process cannot start. */
function brokenAt(place: Place): LoopbackNetwork {
  const network = new LoopbackNetwork();
  return Object.assign(network, { via: (at?: Place): readonly string[] => (at === place ? ['false'] : []) });
}

for (const place of [1, 'balancer'] as const) {
  test(`a trial whose ${place === 1 ? 'second replica' : place} cannot start leaves no process`, OPTIONS, async () => {
    const before = childrenOf(process.pid);
    await assert.rejects(World.start(brokenAt(place)));
    assert.deepEqual(childrenOf(process.pid), before);
  });
}

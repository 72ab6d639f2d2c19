import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lifecycles } from '../../../src/upstream/lifecycle/lifecycles.ts';

function lifecyclesOf() {
  const phases: string[] = [];
  return { phases, lifecycles: new Lifecycles(({ phase }) => phases.push(phase)) };
}

test('a change of the overall phase is reported once', () => {
  const { phases, lifecycles } = lifecyclesOf();
  for (const kind of ['starting', 'starting', 'connected', 'listed'] as const) lifecycles.step('legacy', { kind });
  assert.deepEqual(phases, ['starting', 'ready']);
  assert.equal(lifecycles.in('legacy').phase, 'ready');
  assert.equal(lifecycles.in('modern').phase, 'configured');
});

test('an upstream that serves in one era is up while the other era starts', () => {
  const { lifecycles } = lifecyclesOf();
  lifecycles.step('modern', { kind: 'connected' });
  lifecycles.step('legacy', { kind: 'starting' });
  assert.equal(lifecycles.overall.phase, 'ready');
});

test('an era that only started is reset, one that is ready is not', () => {
  const { lifecycles } = lifecyclesOf();
  lifecycles.step('legacy', { kind: 'starting' });
  lifecycles.reset('legacy', true);
  assert.equal(lifecycles.in('legacy').phase, 'configured');
  lifecycles.step('legacy', { kind: 'connected' });
  lifecycles.reset('legacy', true);
  assert.equal(lifecycles.in('legacy').phase, 'ready');
});

test('the end of the last connection of an era is reported by the other era', () => {
  const { phases, lifecycles } = lifecyclesOf();
  lifecycles.step('modern', { kind: 'connected' });
  lifecycles.step('modern', { kind: 'lost', early: false, reason: 'gone', detail: undefined });
  lifecycles.step('legacy', { kind: 'connected' });
  lifecycles.reset('modern', false);
  assert.deepEqual(phases, ['ready', 'degraded', 'ready']);
});

test('an era that the upstream supports no more is not in use, unless it was stopped', () => {
  const { lifecycles } = lifecyclesOf();
  lifecycles.step('modern', { kind: 'connected' });
  lifecycles.forget('modern');
  assert.equal(lifecycles.in('modern').phase, 'configured');
  lifecycles.stepAll({ kind: 'stopped' });
  lifecycles.forget('modern');
  assert.equal(lifecycles.in('modern').phase, 'stopped');
});

test('stopping stops both eras for good', () => {
  const { phases, lifecycles } = lifecyclesOf();
  lifecycles.step('modern', { kind: 'connected' });
  lifecycles.stepAll({ kind: 'stopped' });
  lifecycles.stepAll({ kind: 'connected' });
  assert.equal(lifecycles.overall.phase, 'stopped');
  assert.equal(phases.at(-1), 'stopped');
});

test('the time of a state stays while attempts to start fail', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const { lifecycles } = lifecyclesOf();
  const failed = { kind: 'unusable', reason: 'gone' } as const;
  const since = [
    ...([
      { kind: 'starting' },
      failed,
      { kind: 'starting' },
      { kind: 'connected' },
      { kind: 'listed' },
      failed,
    ] as const),
  ].map((event) => {
    t.mock.timers.tick(1_000);
    lifecycles.step('legacy', event);
    return lifecycles.overall.sinceMs;
  });
  assert.deepEqual(since, [2_000, 2_000, 2_000, 5_000, 5_000, 7_000]);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { drain, type DrainParts } from '../../src/compose/drain.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Owner } from '../../src/gateway/front/front.ts';

const TIMEOUT = { timeout: 120_000 };
const OTHER = { id: 'other.1', process: 'other', address: '127.0.0.1:1', version: '1' };
const log = pino({ level: 'silent' });
const successor: Owner = {
  forward: async () => 'answered',
  handleMessage: () => Promise.resolve(),
  handleModernRequest: () => ({ cancel: () => undefined, close: () => undefined }),
};

function edgeOf(steps: string[]): DrainParts['edge'] {
  return {
    drain: (hasOthers) => steps.push(hasOthers ? 'drain' : 'refuse'),
    finish: async () => void steps.push('finish'),
    forwardedCount: 0,
    retire: async () => void steps.push('retire'),
  };
}

test('sessions are given away although Redis did not answer at first', TIMEOUT, async () => {
  const steps: string[] = [];
  let hasLeft = false;
  let attempts = 0;
  await drain({
    ...idleParts(steps, () => hasLeft),
    replicas: {
      owners: {
        others: [OTHER],
        leave: async () => {
          if (++attempts < 3) throw new GatewayError('store-unavailable');
          hasLeft = true;
        },
      },
      counters: { renew: async () => void steps.push('renew counts') },
    },
    log,
  });
  assert.deepEqual([...new Set(steps)], ['drain', 'hand over', 'renew counts', 'retire']);
  assert.equal(attempts, 3);
  assert.equal(steps.filter((step) => step === 'renew counts').length, 1);
});

test('sessions are given to a replica that has come since the last renewal', TIMEOUT, async () => {
  const steps: string[] = [];
  const others: (typeof OTHER)[] = [];
  await drain({
    ...idleParts(steps, () => others.length > 0),
    replicas: {
      owners: { others, leave: async () => void others.push(OTHER) },
      counters: { renew: async () => void steps.push('renew counts') },
    },
    log,
  });
  assert.deepEqual([...new Set(steps)], ['drain', 'hand over', 'renew counts', 'retire']);
});

/** Returns the parts of a process with nothing to do. */
function idleParts(steps: string[], hasSuccessor = () => false): Pick<DrainParts, 'core' | 'edge'> {
  return {
    core: {
      gateway: { successor: () => (hasSuccessor() ? successor : undefined) },
      handOver: () => steps.push('hand over'),
      inFlightCount: 0,
      parkedCount: 0,
    },
    edge: edgeOf(steps),
  };
}

test('the only process ends as soon as its responses are written', TIMEOUT, async () => {
  const steps: string[] = [];
  await drain({
    ...idleParts(steps),
    replicas: undefined,
    log,
  });
  assert.deepEqual(steps, ['refuse', 'finish']);
});

test('requests that are passed on end first, also if all processes leave at once', TIMEOUT, async () => {
  const steps: string[] = [];
  await drain({
    ...idleParts(steps),
    replicas: {
      owners: { others: [OTHER], leave: async () => undefined },
      counters: { renew: async () => undefined },
    },
    log,
  });
  assert.deepEqual(steps, ['drain', 'retire']);
});

test('a process that leaves waits for answers that other processes still read', TIMEOUT, async () => {
  const steps: string[] = [];
  let polls = 0;
  const { core, edge } = idleParts(steps);
  const reading = {
    ...edge,
    // Longer than other processes take to notice that this one leaves.
    get forwardedCount() {
      const isRead = ++polls > 80;
      if (isRead && !steps.includes('read')) steps.push('read');
      return isRead ? 0 : 1;
    },
  };
  const owners = { others: [OTHER], leave: async () => undefined };
  await drain({ core, edge: reading, replicas: { owners, counters: { renew: async () => undefined } }, log });
  assert.deepEqual(steps, ['drain', 'read', 'retire']);
});

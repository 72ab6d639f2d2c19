import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { RingWatch } from '../../../src/compose/replicas/ring-watch.ts';
import { InternalKeys } from '../../../src/replicas/internal-keys.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { waitUntil } from '../../support/wait-until.ts';

// SEC-30
test('connections with unknown keys make the ring be read once a second', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const [ring, keys] = [new MemoryKeyStore(), new InternalKeys()];
  keys.update(await ring.read());
  let changes = 0;
  const callbacks = {
    onRingChanged: async () => void changes++,
    onRingReplaced: () => assert.fail('replaced'),
    onLost: () => assert.fail('lost'),
  };
  const watch = new RingWatch(ring, keys, pino({ level: 'silent' }), callbacks);
  const readsAfter = async (ms: number) => {
    nowMs += ms;
    await ring.add(Date.now(), 60_000);
    const [newest] = (await ring.read()).toReversed();
    for (let n = 0; n < 5; n++) keys.onUnknown();
    await new Promise((resolve) => setImmediate(resolve));
    return keys.newest.id === newest?.kid;
  };
  assert.equal(await readsAfter(0), true);
  assert.equal(await readsAfter(999), false);
  assert.equal(await readsAfter(1), true);
  await waitUntil(() => changes === 2);
  watch.close();
  assert.equal(await readsAfter(1_000), false);
});

test('a ring that cannot be read is logged once, and again after it was read', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const [ring, keys] = [new MemoryKeyStore(), new InternalKeys()];
  const read = ring.read.bind(ring);
  let failure: Error | undefined = new Error('another wrapping key');
  ring.read = () => (failure === undefined ? read() : Promise.reject(failure));
  const lines: string[] = [];
  const log = pino({}, { write: (line) => void lines.push(line) });
  const ignore = () => Promise.resolve();
  const watch = new RingWatch(ring, keys, log, {
    onRingChanged: ignore,
    onRingReplaced: ignore,
    onLost: () => undefined,
  });
  const pass = async (seconds: number) => {
    for (let n = 0; n < seconds; n++) {
      t.mock.timers.tick(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return lines.length;
  };
  assert.equal(await pass(5), 1);
  failure = undefined;
  assert.equal(await pass(2), 1);
  failure = new Error('another wrapping key');
  assert.equal(await pass(5), 2);
  watch.close();
});

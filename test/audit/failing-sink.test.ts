import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { GATHER_MS } from '../../src/audit/audit-log.ts';
import { ChainWriter } from '../../src/audit/chain-writer.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';
import { KEY, memoryLog, memorySink } from './memory-log.ts';

const BOUNDED = { timeout: 120_000 };

// R22
test('a call that was refused leaves no record, though its write fails later', BOUNDED, async (t) => {
  stopTime(t).flow(100);
  const { promise: isFull, reject: fail } = Promise.withResolvers<void>();
  const written: string[] = [];
  let appends = 0;
  const { log } = await memoryLog({
    append: async (lines) => {
      if (++appends === 2) await isFull;
      written.push(...lines.split('\n').slice(0, -1));
    },
  });
  log.record({ kind: 'request', name: 'waits' });
  await assert.rejects(log.commit({ kind: 'begun', name: 'refused' }), { code: 'audit-unavailable' });
  fail(new Error('full'));
  await log.close();
  const names = written.flatMap((line) => JSON.parse(line).name ?? []);
  assert.deepEqual(names, ['waits']);
});

test('a log whose head cannot be stored fails until it can', BOUNDED, async (t) => {
  const time = stopTime(t);
  time.flow(100);
  let heads = 0;
  let isFull = false;
  const { log, recoveries } = await memoryLog({
    saveHead: async () => {
      heads++;
      if (isFull) throw new Error('full');
    },
  });
  isFull = true;
  log.record({ kind: 'request' });
  const before = heads;
  await waitUntil(() => heads > before + 4);
  assert.deepEqual([recoveries, log.isFailing], [[], true]);
  isFull = false;
  await waitUntil(() => !log.isFailing);
  assert.equal(recoveries.length, 1);
  await log.close();
});

test('a recovery counts the records that were dropped since the failure began', BOUNDED, async (t) => {
  stopTime(t).flow(100);
  const written: string[] = [];
  let isFull = false;
  const { log, recoveries } = await memoryLog({
    append: async (lines) => {
      if (isFull) throw new Error('full');
      written.push(lines);
    },
  });
  log.drop(100);
  await waitUntil(() => written.some((lines) => lines.includes('"dropped"')));
  for (const dropped of [0, 2]) {
    isFull = true;
    log.record({ kind: 'request' });
    await waitUntil(() => log.isFailing);
    if (dropped > 0) log.drop(dropped);
    isFull = false;
    await waitUntil(() => !log.isFailing);
  }
  assert.deepEqual(recoveries, [0, 2]);
  await log.close();
});

test('a retry that is due while the log closes does not write beside it', BOUNDED, async () => {
  const { promise: isWritable, resolve: free } = Promise.withResolvers<void>();
  let [appends, writing, together] = [0, 0, 0];
  const { log } = await memoryLog({
    append: async () => {
      together = Math.max(together, ++writing);
      try {
        if (++appends !== 2) return await sleep(appends === 3 ? 1_500 : 0);
        await isWritable;
        throw new Error('full');
      } finally {
        writing--;
      }
    },
  });
  log.record({ kind: 'request' });
  await waitUntil(() => appends === 2);
  const closing = log.close();
  free();
  await closing;
  assert.deepEqual([appends, together], [3, 1]);
});

test('a record that comes while the log closes begins no second write', BOUNDED, async () => {
  let [writing, together] = [0, 0];
  const { log, lines } = await memoryLog({
    append: async () => {
      together = Math.max(together, ++writing);
      await nextTurn();
      writing--;
    },
  });
  const text = 'x'.repeat(250);
  const event = { kind: 'request', name: text, label: text, client: text, upstream: text } as const;
  for (let n = 0; n < 120; n++) log.record(event);
  const closing = log.close();
  log.record({ kind: 'request', name: 'late' });
  await closing;
  assert.equal(together, 1);
  assert.equal(
    lines.some((line) => line.includes('late')),
    false,
  );
});

test('records do not wait for the next head', BOUNDED, async (t) => {
  const time = stopTime(t);
  let appended = 0;
  const { log } = await memoryLog({ append: () => Promise.resolve(void appended++) });
  for (let written = 1; written < 4; written++) {
    log.record({ kind: 'request' });
    let passedMs = 0;
    await waitUntil(() => {
      time.pass(GATHER_MS);
      passedMs += GATHER_MS;
      return appended > written;
    });
    assert.ok(passedMs < 10 * GATHER_MS, `written after ${passedMs} ms`);
  }
  await log.close();
});

test('a file begins with its record, though the sink failed after it was there', BOUNDED, async () => {
  let state: 'empty' | 'full' | 'renamed' = 'empty';
  const { log, lines } = await memoryLog({
    isFull: () => state === 'full',
    rotate: async () => {
      state = 'renamed';
      throw new Error('the directory cannot be read');
    },
  });
  const before = lines.length;
  state = 'full';
  log.record({ kind: 'request' });
  await waitUntil(() => lines.length > before);
  await log.close();
  assert.equal(JSON.parse(lines[before] ?? '').kind, 'rotated');
});

test('a removed file is reported once, though attempts to begin another one fail', BOUNDED, async () => {
  let attempts = 3;
  const { log, replaced } = await memoryLog({
    isFull: () => attempts < 3,
    isInPlace: async () => attempts >= 3,
    rotate: async () => {
      if (++attempts < 3) throw new Error('the directory is gone');
    },
  });
  attempts = 0;
  log.record({ kind: 'request' });
  await waitUntil(() => attempts === 3);
  await log.close();
  assert.equal(replaced(), 1);
});

test('a file that is removed while no other one can be opened is reported', BOUNDED, async () => {
  let attempts = 4;
  const { log, lines, replaced } = await memoryLog({
    isFull: () => attempts < 4,
    isInPlace: async () => attempts !== 1 && attempts !== 2,
    rotate: async () => {
      if (++attempts < 3) throw new Error('no descriptor is free');
    },
  });
  const before = lines.length;
  attempts = 0;
  log.record({ kind: 'request' });
  await waitUntil(() => lines.length > before);
  attempts = 4;
  await log.close();
  assert.equal(replaced(), 1);
  assert.partialDeepStrictEqual(JSON.parse(lines[before] ?? ''), { kind: 'rotated', replaced: true });
});

for (const step of ['append', 'rotate'] as const) {
  test(`the removal of a file is reported also after one whose ${step} failed`, BOUNDED, async () => {
    let [isThere, replaced] = [true, 0];
    const fail = async () => {
      isThere = true;
      throw new Error('the disk is full');
    };
    const rotate = async () => {
      isThere = true;
    };
    const sink = memorySink({ rotate, isInPlace: async () => isThere });
    const events = { onWritten: () => undefined, onReplaced: () => void replaced++ };
    const writer = new ChainWriter({ sink, key: KEY, process: {}, events });
    await writer.begin();
    Object.assign(sink, { [step]: fail });
    for (const times of [1, 2]) {
      isThere = false;
      await assert.rejects(writer.upkeep(), /the disk is full/);
      assert.equal(replaced, times);
    }
  });
}

// R22
test('a log that closes while its sink fails for some seconds loses nothing', BOUNDED, async (t) => {
  const time = stopTime(t);
  let isFull = false;
  let appends = 0;
  const written: string[] = [];
  const { log, lost } = await memoryLog({
    append: async (lines) => {
      appends++;
      if (isFull) throw new Error('full');
      written.push(...lines.split('\n').slice(0, -1));
    },
  });
  isFull = true;
  log.record({ kind: 'request', name: 'waits' });
  setTimeout(() => (isFull = false), 8_000);
  await time.passUntil(log.close(), 50);
  assert.ok(appends > 5, `${appends}`);
  assert.deepEqual(lost, []);
  assert.deepEqual(
    written.slice(1).map((line) => JSON.parse(line).kind),
    ['request', 'stopped'],
  );
});

// R22
test('a log that closes while its sink fails ends after 10 s, and counts its loss', BOUNDED, async (t) => {
  const time = stopTime(t);
  let isFull = false;
  const { log, lost } = await memoryLog({
    append: async () => {
      if (isFull) throw new Error('full');
    },
  });
  isFull = true;
  log.record({ kind: 'request', name: 'waits' });
  const beganMs = performance.now();
  await time.passUntil(log.close(), 50);
  const tookMs = performance.now() - beganMs;
  assert.ok(tookMs >= 9_500 && tookMs <= 10_500, `${tookMs}`);
  assert.deepEqual(lost, [2]);
});

test('a write that hangs counts as failing until it ends', BOUNDED, async (t) => {
  const time = stopTime(t);
  const { promise: goesOn, resolve: go } = Promise.withResolvers<void>();
  const written: string[] = [];
  let appends = 0;
  const { log, recoveries } = await memoryLog({
    append: async (lines) => {
      if (++appends === 2) await goesOn;
      written.push(...lines.split('\n').slice(0, -1));
    },
  });
  await assert.rejects(time.passUntil(log.commit({ kind: 'begun', name: 'refused' }), 100), {
    code: 'audit-unavailable',
  });
  assert.equal(log.isFailing, true);
  log.record({ kind: 'request', name: 'later' });
  go();
  await waitUntil(() => !log.isFailing);
  assert.equal(recoveries.length, 1);
  await log.close();
  const names = written.flatMap((line) => JSON.parse(line).name ?? []);
  assert.deepEqual(names, ['refused', 'later']);
});

test('a log that closes while a write hangs ends, and counts its loss', BOUNDED, async (t) => {
  const time = stopTime(t);
  let appends = 0;
  const { log, lost } = await memoryLog({
    append: async () => {
      if (++appends === 2) await new Promise(() => undefined);
    },
  });
  log.record({ kind: 'request', name: 'hangs' });
  await time.passUntil(log.close(), 50);
  assert.deepEqual([appends, lost], [2, [2]]);
});

test('a log whose first write hangs is opened, and fails until it ends', BOUNDED, async (t) => {
  const time = stopTime(t);
  const { promise: goesOn, resolve: go } = Promise.withResolvers<void>();
  const written: string[] = [];
  const opening = memoryLog({
    append: async (lines) => {
      if (written.length === 0) await goesOn;
      written.push(...lines.split('\n').slice(0, -1));
    },
  });
  const { log } = await time.passUntil(opening, 100);
  assert.equal(log.isFailing, true);
  log.record({ kind: 'request' });
  go();
  time.flow(100);
  await waitUntil(() => !log.isFailing);
  await log.close();
  const kinds = written.map((line) => JSON.parse(line).kind);
  assert.deepEqual(kinds, ['started', 'request', 'stopped']);
});

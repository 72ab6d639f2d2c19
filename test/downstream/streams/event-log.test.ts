import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import { type StreamEvent, textBytes } from '../../../src/downstream/streams/event-log.ts';
import { type EventLimits, MemoryEventLog, memoryEventLogs } from '../../../src/downstream/streams/memory-event-log.ts';
import { eventLogContract } from './event-log.contract.ts';

function streamEvent(seq: number, bytes = 10, atMs = 0): StreamEvent {
  return { seq, text: `${seq}`, bytes, atMs };
}

const STREAMS = Array.from({ length: 16 }, (_, index) => `${index}`);

/** Larger than any test here needs. */
const PLENTY = { totalBytes: 1_000_000, principalBytes: 1_000_000 };

function logOf(
  limits: EventLimits,
  budget = new ByteBudget(PLENTY, () => undefined),
  principal = 'alice',
): MemoryEventLog {
  return new MemoryEventLog(limits, budget, principal, () => undefined);
}

function kept(log: MemoryEventLog, stream: string): number[] {
  const streamEvents = log.takeAfter(stream, 0);
  for (const each of streamEvents) log.append(stream, each);
  return streamEvents.map(({ seq }) => seq);
}

eventLogContract('memory', () =>
  memoryEventLogs({ events: 100, bytes: 1_000_000 }, new ByteBudget(PLENTY, () => undefined)),
);

test('beyond the limit, the oldest finished stream is removed first', () => {
  const log = logOf({ events: 4, bytes: 100_000 });
  for (const name of ['open', 'first', 'second']) log.open(name, false);
  log.append('open', streamEvent(1));
  log.append('first', streamEvent(1));
  log.finish('first', 0);
  log.append('second', streamEvent(1));
  log.finish('second', 0);
  log.append('open', streamEvent(2));
  log.append('open', streamEvent(3));
  assert.equal(log.has('first'), false);
  assert.deepEqual(kept(log, 'second'), [1]);
  log.append('open', streamEvent(4));
  log.append('open', streamEvent(5));
  assert.equal(log.has('second'), false);
  assert.deepEqual(kept(log, 'open'), [2, 3, 4, 5]);
});

test('finished streams expire after five minutes, endless ones event by event', () => {
  const log = logOf({ events: 10, bytes: 100_000 });
  log.open('post', false);
  log.open('get', true);
  log.append('post', streamEvent(1));
  log.append('get', streamEvent(1, 10, 0));
  log.append('get', streamEvent(2, 10, 200_000));
  log.finish('post', 100_000);
  log.expire(300_001);
  assert.equal(log.has('post'), true);
  assert.deepEqual(kept(log, 'get'), [2]);
  log.expire(400_001);
  assert.equal(log.has('post'), false);
  assert.equal(log.has('get'), true);
});

// G5
test('a stream that opens after the log was closed holds no bytes', () => {
  const budget = new ByteBudget(PLENTY, () => undefined);
  const log = logOf({ events: 100, bytes: 100_000 }, budget);
  log.open('a', false);
  log.close();
  log.open('b', false);
  log.append('b', streamEvent(1));
  assert.equal(budget.bytes, 0);
});

test('a stream that opens counts toward the bytes of its session', () => {
  const log = logOf({ events: 8, bytes: 10_000 }, new ByteBudget(PLENTY, () => undefined));
  log.open('a', false);
  for (const seq of [1, 2]) log.append('a', streamEvent(seq, 4_000));
  log.open('b', false);
  assert.ok(log.heldBytes <= 10_000, `${log.heldBytes}`);
  assert.deepEqual(kept(log, 'a'), [2]);
});

// N-96
test('a stream that opens in a full log removes the oldest event of another', () => {
  const log = logOf({ events: 8, bytes: 10_000 });
  for (const stream of ['a', 'b']) log.open(stream, false);
  for (const [seq, bytes] of [2_616, 3_993].entries()) log.append('a', streamEvent(seq + 1, bytes));
  log.open('c', false);
  assert.equal(log.heldBytes, 10_001 - 2_616 - 160);
  assert.deepEqual(kept(log, 'a'), [2]);
});

// N-96
test('unfinished streams without events keep the limit too, the newest remain', () => {
  const log = logOf({ events: 8, bytes: 10_000 });
  const names = Array.from({ length: 30 }, (_, index) => `${index}`);
  for (const name of names) log.open(name, false);
  assert.equal(log.heldBytes, 9 * 1_024);
  assert.deepEqual(
    names.filter((name) => log.has(name)),
    names.slice(-9),
  );
});

// N-96
test('a stream whose log was removed before its end is reported as gone at its end', () => {
  const removed: string[] = [];
  const budget = new ByteBudget(PLENTY, () => undefined);
  const log = new MemoryEventLog({ events: 8, bytes: 1_024 }, budget, 'alice', (stream) => removed.push(stream));
  for (const stream of ['a', 'b', 'c']) log.open(stream, false);
  assert.deepEqual(removed.splice(0), ['a', 'b']);
  log.append('a', streamEvent(1));
  log.finish('a', 0);
  assert.deepEqual(removed.splice(0), ['a']);
  log.remove('b');
  assert.deepEqual(removed.splice(0), ['b']);
});

// N-96
// G5
test('the log never exceeds its limits', () => {
  const step = fc.record({
    what: fc.constantFrom('open', 'open', 'keep', 'keep', 'keep', 'finish', 'take', 'remove'),
    stream: fc.constantFrom(...STREAMS),
    bytes: fc.nat(4_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120, size: 'max' }), (steps) => {
      const budget = new ByteBudget(PLENTY, () => undefined);
      const log = logOf({ events: 8, bytes: 5_000 }, budget);
      let seq = 0;
      for (const { what, stream, bytes } of steps) {
        if (what === 'open' && !log.has(stream)) log.open(stream, false);
        if (what === 'keep') log.append(stream, streamEvent(++seq, bytes));
        if (what === 'finish') log.finish(stream, 0);
        if (what === 'take') log.takeAfter(stream, seq - 2);
        if (what === 'remove') log.remove(stream);
        assert.ok(log.heldBytes >= 0 && log.heldBytes <= 5_000);
        assert.equal(budget.bytes, log.heldBytes);
      }
      let count = 0;
      for (const stream of STREAMS) count += log.takeAfter(stream, 0).length;
      assert.ok(count <= 8);
      log.close();
      assert.equal(log.heldBytes, 0);
      assert.equal(budget.bytes, 0);
    }),
  );
});

// N-24
test('beyond the total, the biggest session loses its oldest finished stream', () => {
  const budget = new ByteBudget({ totalBytes: 20_000, principalBytes: 20_000 }, () => undefined);
  const [big, small] = ['alice', 'bob'].map((principal) => logOf({ events: 100, bytes: 100_000 }, budget, principal));
  assert.ok(big !== undefined && small !== undefined);
  for (const stream of ['under-way', 'first', 'second']) {
    big.open(stream, false);
    big.append(stream, streamEvent(1, 4_000));
    if (stream !== 'under-way') big.finish(stream, 0);
  }
  small.open('own', false);
  small.append('own', streamEvent(1, 3_000));
  assert.equal(big.has('first'), true);
  small.append('own', streamEvent(2, 1_000));
  assert.equal(big.has('first'), false);
  assert.deepEqual(kept(big, 'second'), [1]);
  assert.deepEqual(kept(big, 'under-way'), [1]);
  assert.deepEqual(kept(small, 'own'), [1, 2]);
});

// N-24
test('a principal beyond its share loses only its own events', () => {
  const budget = new ByteBudget({ totalBytes: 100_000, principalBytes: 10_000 }, () => undefined);
  const other = logOf({ events: 100, bytes: 100_000 }, budget, 'bob');
  other.open('s', false);
  other.append('s', streamEvent(1, 8_000));
  other.finish('s', 0);
  for (let session = 0; session < 5; session++) {
    const log = logOf({ events: 100, bytes: 100_000 }, budget, 'alice');
    log.open('s', false);
    log.append('s', streamEvent(1, 5_000));
    log.finish('s', 0);
  }
  assert.deepEqual(kept(other, 's'), [1]);
  assert.ok(budget.bytes <= 10_000 + other.heldBytes, `${budget.bytes}`);
});

// N-24
test('textBytes returns the memory of a text', () => {
  assert.equal(textBytes('abcd'), 4);
  assert.equal(textBytes('abc\u{1F600}'), 10);
});

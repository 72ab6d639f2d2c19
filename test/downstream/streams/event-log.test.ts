import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { EventLog, type StreamEvent } from '../../../src/downstream/streams/event-log.ts';

function streamEvent(seq: number, bytes = 10, atMs = 0): StreamEvent {
  return { seq, text: `${seq}`, bytes, atMs };
}

function kept(log: EventLog, stream: string): number[] {
  const streamEvents = log.append(stream, 0);
  for (const each of streamEvents) log.keep(stream, each);
  return streamEvents.map(({ seq }) => seq);
}

test('what comes after an event is handed out in order, and nothing else', () => {
  const log = new EventLog({ events: 10, bytes: 1_000 });
  log.open('a', false);
  log.open('b', false);
  for (const seq of [1, 2, 3]) log.keep('a', streamEvent(seq));
  log.keep('b', streamEvent(1));
  assert.deepEqual(
    log.append('a', 1).map(({ seq }) => seq),
    [2, 3],
  );
  assert.deepEqual(kept(log, 'a'), [1]);
  assert.deepEqual(kept(log, 'b'), [1]);
  assert.deepEqual(log.append('a', 7), []);
  assert.deepEqual(log.append('nobody', 0), []);
});

test('too much: the oldest answered stream goes before any event of one under way', () => {
  const log = new EventLog({ events: 4, bytes: 1_000 });
  for (const name of ['open', 'first', 'second']) log.open(name, false);
  log.keep('open', streamEvent(1));
  log.keep('first', streamEvent(1));
  log.finish('first', 0);
  log.keep('second', streamEvent(1));
  log.finish('second', 0);
  log.keep('open', streamEvent(2));
  log.keep('open', streamEvent(3));
  assert.equal(log.has('first'), false);
  assert.deepEqual(kept(log, 'second'), [1]);
  log.keep('open', streamEvent(4));
  log.keep('open', streamEvent(5));
  assert.equal(log.has('second'), false);
  assert.deepEqual(kept(log, 'open'), [2, 3, 4, 5]);
});

test('events of an answered stream are kept for five minutes, those of an endless one as long each', () => {
  const log = new EventLog({ events: 10, bytes: 1_000 });
  log.open('post', false);
  log.open('get', true);
  log.keep('post', streamEvent(1));
  log.keep('get', streamEvent(1, 10, 0));
  log.keep('get', streamEvent(2, 10, 200_000));
  log.finish('post', 100_000);
  log.expire(300_001);
  assert.equal(log.has('post'), true);
  assert.deepEqual(kept(log, 'get'), [2]);
  log.expire(400_001);
  assert.equal(log.has('post'), false);
  assert.equal(log.has('get'), true);
});

test('G5 the log never holds more than its limits, whatever happens', () => {
  const step = fc.record({
    what: fc.constantFrom('open', 'keep', 'keep', 'keep', 'finish', 'take', 'drop'),
    stream: fc.constantFrom('a', 'b', 'c', 'd'),
    bytes: fc.nat(400),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const log = new EventLog({ events: 8, bytes: 1_000 });
      const held = new Map<string, number>();
      let seq = 0;
      for (const { what, stream, bytes } of steps) {
        if (what === 'open' && !log.has(stream)) log.open(stream, false);
        if (what === 'keep') log.keep(stream, streamEvent(++seq, bytes));
        if (what === 'finish') log.finish(stream, 0);
        if (what === 'take') log.append(stream, seq - 2);
        if (what === 'drop') log.drop(stream);
        assert.ok(log.bytes >= 0 && log.bytes <= 1_000);
      }
      for (const stream of ['a', 'b', 'c', 'd']) held.set(stream, log.append(stream, 0).length);
      assert.ok([...held.values()].reduce((sum, count) => sum + count, 0) <= 8);
      assert.equal(log.bytes, 0);
    }),
  );
});

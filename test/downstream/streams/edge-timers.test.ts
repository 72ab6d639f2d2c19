import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { EdgeTimers } from '../../../src/downstream/streams/edge-timers.ts';
import { StreamWriter } from '../../../src/downstream/streams/stream-writer.ts';

test('event logs expire now and then until they are removed', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const timers = new EdgeTimers(1_000);
  let count = 0;
  const log = { expire: () => count++ };
  timers.addExpiring(log);
  t.mock.timers.tick(20_000);
  const before = count;
  assert.ok(before > 0);
  timers.removeExpiring(log);
  t.mock.timers.tick(20_000);
  assert.equal(count, before);
});

test('an open stream gets a comment at each keep-alive, a removed one gets none', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const timers = new EdgeTimers(1_000);
  const stream = new PassThrough();
  const writer = new StreamWriter(stream, { onGone() {}, onDropped() {} }, { isImpatient: true });
  timers.addStream(writer);
  t.mock.timers.tick(3_000);
  const comments = String(stream.read());
  assert.equal(comments.match(/^:/gm)?.length, 3, comments);
  timers.removeStream(writer);
  t.mock.timers.tick(3_000);
  assert.equal(stream.read(), null);
  timers.addStream(writer);
  t.mock.timers.tick(1_000);
  assert.match(String(stream.read()), /^:/);
});

test('keep-alives of many streams are spread over the interval', (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const timers = new EdgeTimers(1_000);
  const streams = Array.from({ length: 100 }, () => new PassThrough());
  for (const stream of streams) {
    timers.addStream(new StreamWriter(stream, { onGone() {}, onDropped() {} }, { isImpatient: true }));
  }
  const counts = Array.from({ length: 50 }, () => {
    t.mock.timers.tick(20);
    return streams.filter((stream) => stream.read() !== null).length;
  });
  assert.deepEqual(
    counts,
    counts.map(() => 2),
  );
});

test('40 000 streams are removed in less than 2 s, the oldest first', () => {
  const timers = new EdgeTimers(1_000);
  const handler = { onGone() {}, onDropped() {} };
  const out = new PassThrough().setMaxListeners(0);
  const writers = Array.from({ length: 40_000 }, () => new StreamWriter(out, handler, { isImpatient: true }));
  for (const writer of writers) timers.addStream(writer);
  const beganMs = performance.now();
  for (const writer of writers) timers.removeStream(writer);
  assert.ok(performance.now() - beganMs < 2_000); // subject
});

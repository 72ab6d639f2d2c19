import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import { EdgeTimers } from '../../../src/downstream/streams/edge-timers.ts';
import type { EventLog } from '../../../src/downstream/streams/event-log.ts';
import { EventStream } from '../../../src/downstream/streams/event-stream.ts';
import { MemoryEventLog } from '../../../src/downstream/streams/memory-event-log.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { responder } from './responses.ts';

const LIMIT = { timeout: 120_000 };
const PLENTY = { totalBytes: 1_000_000, principalBytes: 1_000_000 };

function memoryLog(): MemoryEventLog {
  const budget = new ByteBudget(PLENTY, () => undefined);
  return new MemoryEventLog({ events: 100, bytes: 100_000 }, budget, 'alice', () => undefined);
}

function streamOf(isPriming: boolean, onGone?: () => void, log: EventLog = memoryLog()) {
  const budget = new ByteBudget(PLENTY, () => undefined);
  const timers = new EdgeTimers(60_000);
  const parts = { log, timers, metrics: createMetrics('0'), unsent: budget, principal: 'alice', isPriming };
  return { log, stream: new EventStream('s', 'post', '7', parts, onGone) };
}

// REL-19
test('a client that resumes gets each later event once, to the end', LIMIT, async () => {
  await using server = await responder();
  const gone = Promise.withResolvers<void>();
  const { stream } = streamOf(true, () => gone.resolve());
  const first = await server.get((response) => stream.attach(response));
  stream.send('"a"');
  assert.deepEqual(await first.data(1), ['"a"']);
  await first.disconnect();
  await gone.promise;
  assert.equal(stream.send('"b"'), true);
  stream.finish('"c"');
  assert.equal(stream.missingAfter(1), 'events');
  const second = await server.get((response) => stream.attach(response, 1));
  assert.deepEqual(await second.data(), ['"b"', '"c"']);
  assert.equal(stream.missingAfter(3), 'nothing');
  assert.equal(stream.send('"d"'), false);
});

test('events after the maximum age of a connection are kept for the next one', LIMIT, async (t) => {
  await using server = await responder();
  t.mock.timers.enable({ apis: ['setInterval'] });
  const { stream } = streamOf(true);
  const first = await server.get((response) => stream.attach(response));
  const nowMs = performance.now();
  t.mock.method(performance, 'now', () => nowMs + 3_601_000);
  t.mock.timers.tick(400);
  assert.equal(stream.send('"a"'), true);
  stream.finish('"b"');
  assert.deepEqual(await first.data(), []);
  const second = await server.get((response) => stream.attach(response, 0));
  assert.deepEqual(await second.data(), ['"a"', '"b"']);
});

test('a client without any event id cannot resume, so nothing is kept for it', LIMIT, async () => {
  await using server = await responder();
  const gone = Promise.withResolvers<void>();
  const { stream } = streamOf(false, () => gone.resolve());
  const first = await server.get((response) => stream.attach(response));
  await first.disconnect();
  await gone.promise;
  assert.equal(stream.send('"a"'), false);
});

test('a new connection replaces the one before, which gets no more events', LIMIT, async () => {
  await using server = await responder();
  const { stream } = streamOf(true);
  const first = await server.get((response) => stream.attach(response));
  stream.send('"a"');
  assert.deepEqual(await first.data(1), ['"a"']);
  const second = await server.get((response) => stream.attach(response, 1));
  stream.finish('"b"');
  assert.deepEqual(await second.data(), ['"b"']);
  assert.deepEqual(await first.data(), ['"a"']);
});

test('the end of a stream whose events are gone is lost', async () => {
  const { log, stream } = streamOf(true);
  stream.finish();
  assert.equal(stream.missingAfter(0), 'nothing');
  const { stream: closed } = streamOf(true);
  closed.close();
  assert.equal(closed.isFinished, true);
  log.close();
});

/** Returns a log that keeps an event only when it is told so, like one behind a network. */
function remoteLog(mayWrite = true): { readonly log: EventLog; acknowledge(): void; readonly pending: number } {
  const kept = memoryLog();
  let waiting: (() => void)[] = [];
  return {
    log: {
      open: (stream, isEndless) => kept.open(stream, isEndless),
      append: async (stream, streamEvent) => {
        await new Promise<void>((resolve) => waiting.push(resolve));
        kept.append(stream, streamEvent);
        return mayWrite;
      },
      finish: (stream, nowMs) => kept.finish(stream, nowMs),
      hasAfter: (stream, seq) => kept.hasAfter(stream, seq),
      takeAfter: (stream, seq) => kept.takeAfter(stream, seq),
      recover: () => kept.recover(),
      follow: () => kept.follow(),
      remove: (stream) => kept.remove(stream),
      expire: (nowMs) => kept.expire(nowMs),
      close: () => kept.close(),
    },
    acknowledge: () => {
      const resolvers = waiting;
      waiting = [];
      for (const resolve of resolvers) resolve();
    },
    get pending() {
      return waiting.length;
    },
  };
}

test('an event is written after the log has acknowledged it, in order', LIMIT, async () => {
  await using server = await responder();
  const remote = remoteLog();
  const { stream } = streamOf(true, undefined, remote.log);
  const reply = await server.get((response) => stream.attach(response));
  for (const text of ['"a"', '"b"']) stream.send(text);
  stream.finish('"c"');
  assert.equal(remote.pending, 1, 'the second event waits for the first');
  const data = reply.data();
  let isAnswered = false;
  void data.then(() => (isAnswered = true));
  for (let n = 0; n < 3; n++) {
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(isAnswered, false);
    assert.equal(remote.pending, 1);
    remote.acknowledge();
  }
  assert.deepEqual(await data, ['"a"', '"b"', '"c"']);
});

// REL-27
test('an event of a stream that another process writes does not reach the client', LIMIT, async () => {
  await using server = await responder();
  const remote = remoteLog(false);
  const gone = Promise.withResolvers<void>();
  const { stream } = streamOf(true, () => gone.resolve(), remote.log);
  const reply = await server.get((response) => stream.attach(response));
  for (const text of ['"a"', '"b"']) stream.send(text);
  const data = reply.data();
  remote.acknowledge();
  await gone.promise;
  await assert.rejects(data);
});

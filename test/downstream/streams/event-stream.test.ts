import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import { EdgeTimers } from '../../../src/downstream/streams/edge-timers.ts';
import { EventLog } from '../../../src/downstream/streams/event-log.ts';
import { EventStream } from '../../../src/downstream/streams/event-stream.ts';
import { responder } from './responses.ts';

const LIMIT = { timeout: 20_000 };
const PLENTY = { totalBytes: 1_000_000, principalBytes: 1_000_000 };

function streamOf(isPriming: boolean, onGone?: () => void) {
  const budget = new ByteBudget(PLENTY, () => undefined);
  const log = new EventLog({ events: 100, bytes: 100_000 }, budget, 'alice', () => undefined);
  const timers = new EdgeTimers(60_000);
  const parts = { log, timers, metrics: undefined, unsent: budget, principal: 'alice', isPriming };
  return { log, stream: new EventStream('s', 'post', '7', parts, onGone) };
}

test('REL-19 a client that resumes gets each later event once, to the end', LIMIT, async () => {
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

test('the end of a stream whose events are gone is lost', () => {
  const { log, stream } = streamOf(true);
  stream.finish();
  assert.equal(stream.missingAfter(0), 'nothing');
  const { stream: closed } = streamOf(true);
  closed.close();
  assert.equal(closed.isFinished, true);
  log.close();
});

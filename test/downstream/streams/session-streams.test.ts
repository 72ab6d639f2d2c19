import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEdgeMemory } from '../../../src/downstream/memory/edge-memory.ts';
import { EdgeTimers } from '../../../src/downstream/streams/edge-timers.ts';
import { MemoryEventLogs } from '../../../src/downstream/streams/memory-event-log.ts';
import { SessionStreams } from '../../../src/downstream/streams/session-streams.ts';
import type { ClientSession, MessageSink } from '../../../src/gateway/front.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { configWith } from '../edge.ts';
import { responder } from './responses.ts';

const LIMIT = { timeout: 20_000 };

function streamsOf(id = 'sealed-id') {
  const ending = new AbortController();
  const sinks: (MessageSink | undefined)[] = [];
  const session: ClientSession = {
    id,
    caller: {
      principal: LOCAL,
      view: '',
      revision: '2025-11-25',
      capabilities: RawObject.EMPTY,
    },
    closed: ending.signal,
    setSink: (sink) => void sinks.push(sink),
    removeSink: () => void sinks.push(undefined),
  };
  const memory = createEdgeMemory(configWith({}), undefined);
  const streams = new SessionStreams(session, {
    eventLogs: new MemoryEventLogs({ events: 100, bytes: 100_000 }, memory.events),
    timers: new EdgeTimers(60_000),
    metrics: undefined,
    memory,
  });
  return { streams, sinks, end: () => ending.abort() };
}

test('a session opens its stream a bounded number of times; progress is not counted', () => {
  const { streams } = streamsOf();
  for (let n = 0; n < LIMITS.streamOpensPerMinute; n++) assert.equal(streams.mayOpen(100_000, undefined), true);
  assert.equal(streams.mayOpen(100_000, undefined), false);
  assert.equal(streams.mayOpen(100_000, 's.1'), true);
  assert.equal(streams.mayOpen(100_000, 's.1'), false, 'the same event id again is no progress');
  assert.equal(streams.mayOpen(100_000, 's.2'), true);
  assert.equal(streams.mayOpen(160_001, undefined), true);
});

test('a new GET stream replaces the one before, and becomes the sink', LIMIT, async () => {
  await using server = await responder();
  const { streams, sinks, end } = streamsOf();
  const first = await server.get((response) => streams.listen(response));
  const second = await server.get((response) => streams.listen(response));
  assert.deepEqual(await first.data(), []);
  sinks.at(-1)?.send('"a"');
  assert.deepEqual(await second.data(1), ['"a"']);
  end();
  assert.deepEqual(await second.data(), ['"a"']);
});

test('S-003 N-43 an event id of another session opens a new stream and tells nothing', LIMIT, async () => {
  await using server = await responder();
  const { streams: alice, end } = streamsOf('of-alice');
  const { streams: bob, end: endBob } = streamsOf('of-bob');
  let name = '';
  const posted = await server.get((response) => {
    const stream = alice.open(response, '7');
    name = stream.name;
    stream.finish('"secret"');
  });
  assert.deepEqual(await posted.data(), ['"secret"']);
  const other = await server.get(async (response) => {
    assert.equal(await bob.resume(response, `${name}.0.${Buffer.from('7').toString('base64url')}`), true);
  });
  endBob();
  assert.deepEqual(await other.data(), []);
  end();
});

test('N-43 a request of the session before a restart is answered with outcome-unknown', LIMIT, async () => {
  await using server = await responder();
  const { streams: before } = streamsOf();
  let name = '';
  const posted = await server.get((response) => {
    const stream = before.open(response, '7');
    name = stream.name;
    stream.finish();
  });
  await posted.data();
  const { streams: after, end } = streamsOf();
  const resumed = await server.get(async (response) => {
    assert.equal(await after.resume(response, `${name}.0.${Buffer.from('7').toString('base64url')}`), true);
  });
  const [answer = ''] = await resumed.data();
  const { id, error } = JSON.parse(answer);
  assert.deepEqual([id, error.data.code], [7, 'outcome-unknown']);
  end();
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEdgeMemory } from '../../../src/downstream/memory/edge-memory.ts';
import { EdgeTimers } from '../../../src/downstream/streams/edge-timers.ts';
import type { OpenEventLog } from '../../../src/downstream/streams/event-log.ts';
import { memoryEventLogs } from '../../../src/downstream/streams/memory-event-log.ts';
import { EventStream } from '../../../src/downstream/streams/event-stream.ts';
import { SessionStreams } from '../../../src/downstream/streams/session-streams.ts';
import type { ClientSession, MessageSink } from '../../../src/gateway/front/front.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { redisConfig, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { configWith } from '../edge.ts';
import { EventProcess } from './event-process.ts';
import { type Responder, responder } from './responses.ts';

const LIMIT = { timeout: 120_000 };
const redis = sharedRedis();

const memoryLog: OpenEventLog = (session, onRemoved) => {
  const budget = createEdgeMemory(configWith({}), createMetrics('0')).events;
  return memoryEventLogs({ events: 100, bytes: 100_000 }, budget)(session, onRemoved);
};

function streamsOf(id = 'sealed-id', logs?: OpenEventLog, bytes = 100_000) {
  const ending = new AbortController();
  const sinks: (MessageSink | undefined)[] = [];
  const session: ClientSession = {
    id,
    ref: { principal: LOCAL.key, serial: 1, expiresMs: Date.now() + 3_600_000 },
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
  const metrics = createMetrics('0');
  const memory = createEdgeMemory(configWith({}), metrics);
  const streams = new SessionStreams(session, {
    openEventLog: logs ?? memoryEventLogs({ events: 100, bytes }, memory.events),
    timers: new EdgeTimers(60_000),
    metrics,
    memory,
  });
  return { streams, session, sinks, memory, end: () => ending.abort() };
}

test('a session opens its stream a bounded number of times; progress is not counted', LIMIT, async () => {
  await using server = await responder();
  const { streams, sinks } = streamsOf();
  await server.get((response) => streams.listen(response));
  const [stream] = sinks;
  assert.ok(stream instanceof EventStream);
  const event = (seq: number) => `${stream.name}.${seq}`;
  for (let n = 0; n < LIMITS.streamOpensPerMinute; n++) assert.equal(streams.mayOpen(100_000, undefined), true);
  assert.equal(streams.mayOpen(100_000, undefined), false);
  assert.equal(streams.mayOpen(100_000, event(1)), true);
  assert.equal(streams.mayOpen(100_000, event(1)), false, 'the same event id again is no progress');
  assert.equal(streams.mayOpen(100_000, event(2)), true);
  for (const id of ['s.1', 's.2']) assert.equal(streams.mayOpen(100_000, id), false, 'a stream that is unknown');
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

test('a GET stream that the gateway ends is no sink any more', LIMIT, async () => {
  await using server = await responder();
  const { streams, sinks, end } = streamsOf();
  const reply = await server.get((response) => streams.listen(response));
  assert.equal(sinks.length, 1);
  streams.drain();
  assert.deepEqual(await reply.data(), []);
  assert.deepEqual(sinks.splice(1), [undefined]);
  streams.drain();
  assert.equal(sinks.length, 1, 'the session is not used again');
  end();
});

for (const when of ['before', 'after'] as const) {
  test(`a GET stream is resumed that the gateway ends ${when} its client goes`, LIMIT, async () => {
    await using server = await responder();
    const { streams, sinks, end } = streamsOf();
    const first = await server.get((response) => streams.listen(response));
    const stream = sinks.at(-1);
    assert.ok(stream instanceof EventStream);
    stream.send('"a"');
    stream.send('"b"');
    if (when === 'after') await first.disconnect();
    streams.drain();
    const again = await server.get(async (response) => {
      assert.equal(await streams.resume(response, `${stream.name}.1`), true);
    });
    stream.send('"c"');
    end();
    assert.deepEqual(await again.data(), ['"b"', '"c"']);
  });
}

// S-003 N-43
test('an event id of another session opens a new stream and tells nothing', LIMIT, async () => {
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

// N-43
test('a request of the session before a restart is answered with outcome-unknown', LIMIT, async () => {
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

// N-96
test('a stream without room for its events is answered, and cannot be resumed', LIMIT, async () => {
  await using server = await responder();
  const { streams, end } = streamsOf('sealed-id', undefined, 1_024);
  const { promise: opened, resolve } = Promise.withResolvers<EventStream>();
  const posted = await server.get((response) => resolve(streams.open(response, '7')));
  const stream = await opened;
  const later = await server.get((response) => streams.listen(response));
  stream.send('"a"');
  stream.finish('"answer"');
  assert.deepEqual(await posted.data(), ['"a"', '"answer"']);
  const resumed = await server.get(async (response) => {
    const id = `${stream.name}.1.${Buffer.from('7').toString('base64url')}`;
    assert.equal(await streams.resume(response, id), true);
  });
  const [answer = ''] = await resumed.data();
  assert.equal(JSON.parse(answer).error.data.code, 'outcome-unknown');
  end();
  await later.data();
});

test('a GET stream that another process has begun replaces the one before as the sink', LIMIT, async () => {
  await using server = await responder();
  const { streams: before, sinks: sinksBefore } = streamsOf();
  const lost = await server.get((response) => before.listen(response));
  const nameOf = (sink: MessageSink | undefined) => (sink instanceof EventStream ? sink.name : undefined);
  const name = nameOf(sinksBefore[0]);
  const {
    streams: after,
    sinks,
    end,
  } = streamsOf('sealed-id', (session, onRemoved) => {
    const log = memoryLog(session, onRemoved);
    log.recover = async () => ({ isEndless: true, isFinished: false, seq: 0, isFollowed: false });
    return log;
  });
  const old = await server.get((response) => after.listen(response));
  const oldName = nameOf(sinks[0]);
  const resumed = await server.get(async (response) => void (await after.resume(response, `${name}.0`)));
  assert.deepEqual(await old.data(), []);
  assert.deepEqual(sinks.map(nameOf), [oldName, undefined, name]);
  end();
  await resumed.data();
  await lost.disconnect();
});

test('a resumed GET stream whose events exceed the budget is no sink', LIMIT, async () => {
  await using server = await responder();
  const { streams, sinks, memory, end } = streamsOf();
  const first = await server.get((response) => streams.listen(response));
  const [stream] = sinks;
  assert.ok(stream instanceof EventStream);
  stream.send('"a"');
  await first.data(1);
  await first.disconnect();
  await waitUntil(() => sinks.length === 2);
  stream.send('"b"');
  const others = memory.unsent.join(LOCAL.key, { heldBytes: 1, shed: () => undefined });
  const refused = server.get(async (response) => {
    others.add(2 ** 40);
    await streams.resume(response, `${stream.name}.1`);
    others.subtract(2 ** 40);
  });
  // It depends on the time whether the client still gets the headers.
  await refused.then(
    (reply) => assert.rejects(reply.data()),
    () => undefined,
  );
  assert.equal(sinks.at(-1), undefined);
  const again = await server.get(async (response) => void (await streams.resume(response, `${stream.name}.1`)));
  assert.deepEqual(await again.data(1), ['"b"']);
  assert.equal(sinks.at(-1), stream);
  end();
});

/** Two processes that have the same session, one after the other. The first one has sent an event. */
async function moveStream(server: Responder) {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const [before, after] = [streamsOf('sealed-id', one.logs), streamsOf('sealed-id', two.logs)];
  await one.claim(before.session.ref);
  const { promise: opened, resolve } = Promise.withResolvers<EventStream>();
  const first = await server.get((response) => resolve(before.streams.open(response, '7')));
  const stream = await opened;
  stream.send('"a"');
  assert.deepEqual(await first.data(1), ['"a"']);
  await two.claim(after.session.ref);
  const resume = (seq: number) =>
    server.get(async (response) => {
      const id = `${stream.name}.${seq}.${Buffer.from('7').toString('base64url')}`;
      assert.equal(await after.streams.resume(response, id), true);
    });
  return { one, two, stream, resume, end: [before.end, after.end] };
}

// R10
test('a client gets the answer of a process that has given the session away', LIMIT, async () => {
  await using server = await responder();
  const { one, two, stream, resume, end } = await moveStream(server);
  two.alive.add(one.name);
  const resumed = await resume(0);
  assert.deepEqual(await resumed.data(1), ['"a"']);
  stream.send('"b"');
  stream.finish('"answer"');
  assert.deepEqual(await resumed.data(), ['"a"', '"b"', '"answer"']);
  assert.deepEqual(await (await resume(2)).data(), ['"answer"']);
  for (const each of end) each();
});

// R11
test('a stream that is followed ends with outcome-unknown if its process dies', LIMIT, async () => {
  await using server = await responder();
  const { one, two, stream, resume, end } = await moveStream(server);
  two.alive.add(one.name);
  const resumed = await resume(1);
  stream.send('"b"');
  assert.deepEqual(await resumed.data(1), ['"b"']);
  two.alive.clear();
  const [, answer = ''] = await resumed.data();
  assert.match(answer, /"outcome-unknown"/);
  stream.finish('"too late"');
  assert.deepEqual(await (await resume(2)).data(), [answer]);
  for (const each of end) each();
});

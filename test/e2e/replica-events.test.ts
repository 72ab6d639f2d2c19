import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { type Events, getEvents, initialize, post, postForEvents, rpc, send } from '../downstream/client.ts';
import type { Act, Step } from '../fixtures/servers/nonce-acts.ts';
import { startRemote } from '../support/nonce-remote.ts';
import { random } from '../support/random.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { connectSdk1Over } from '../support/sdk-client.ts';
import { SEED } from '../support/seed.ts';
import { SessionServer } from '../support/session-server.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };

function act(nonce: string, progress: number, pauseMs: number): Record<string, unknown> {
  const steps: Step[] = Array.from({ length: progress }, () => 'progress');
  const args: Act = { nonce, steps, pauseMs, fails: false };
  return { name: 'nonce__act', arguments: args, _meta: { progressToken: nonce } };
}

async function startReplicas(count: number, upstream: string): Promise<Replicas> {
  return await Replicas.start(count, { mcpServers: { nonce: { url: upstream } } }, { events: true });
}

/** The part of an event that a client has. */
interface Received {
  readonly id: string | undefined;
  readonly data: string;
}

function received({ seen }: Events): Received[] {
  return seen.filter(({ data }) => data !== '').map(({ id, data }) => ({ id, data }));
}

/** Resumes a stream. The owner of the session may have died just now. */
async function resume(url: string, session: string, lastEventId: string): Promise<Events> {
  for (;;) {
    const events = await getEvents(url, session, { 'last-event-id': lastEventId });
    if (events.status !== 503) return events;
    events.close();
  }
}

const answered = ({ messages }: Events) => messages.some(({ id }) => id === 7);
const seqOf = (id = '') => Number(id.split('.')[1]);

/** Opens a session at the first replica, which owns it. */
async function openAt(replicas: Replicas): Promise<{ readonly session: string; readonly urls: readonly string[] }> {
  const urls = replicas.each.map((replica) => replica.endpoint());
  const session = await initialize(urls[0] ?? '');
  await post(urls[0] ?? '', JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  return { session, urls };
}

// L-014 T-026
test('calls with equal ids at several replicas are each answered on their POST', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const nonces = ['nonce:1:1;', 'nonce:1:2;', 'nonce:1:3;', 'nonce:1:4;'];
  const calls = await Promise.all(
    nonces.map((nonce, at) => {
      const params = { ...act(nonce, 1, 500), _meta: { progressToken: 7 } };
      return postForEvents(urls[at % 2] ?? '', rpc(7, 'tools/call', params), session);
    }),
  );
  await Promise.all(calls.map((call) => call.ended()));
  for (const [at, nonce] of nonces.entries()) {
    const texts = calls[at]?.messages.map((message) => /nonce:\d+:\d+;/.exec(JSON.stringify(message))?.[0]);
    assert.deepEqual(texts, [nonce, nonce]);
    assert.equal(await remote.ran(nonce), 1);
  }
});

// R9
test('an answer that was kept is had at another replica after the death of the owner', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:1:1;', 4, 60)), session);
  await call.until(({ messages }) => messages.length >= 1);
  const from = call.seen.find(({ data }) => data !== '')?.id ?? '';
  call.close();
  const atOwner = await resume(one, session, from);
  await atOwner.until(answered);
  await atOwner.ended();
  replicas.at(0).kill('SIGKILL');

  const elsewhere = await resume(two, session, from);
  await elsewhere.ended();
  assert.deepEqual(received(elsewhere), received(atOwner), 'the same events with the same ids');
  assert.match(received(elsewhere).at(-1)?.data ?? '', /"result"/);
  const last = received(elsewhere).at(-1)?.id ?? '';
  assert.equal((await resume(two, session, last)).status, 405, 'there is nothing after the end');
  assert.equal(await remote.ran('nonce:1:1;'), 1);
});

// R11
test('a stream that was cut off by the death of its owner ends with the truth, once', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:2:2;', 500, 100)), session);
  await call.until(({ messages }) => messages.length >= 5);
  replicas.at(0).kill('SIGKILL');
  await call.ended();
  const [, second] = received(call);
  const ends = [];
  for (let n = 0; n < 2; n++) {
    const resumed = await resume(two, session, second?.id ?? '');
    await resumed.ended();
    ends.push(received(resumed));
  }
  const [end = []] = ends;
  assert.deepEqual(ends[1], end, 'each resumption gets the same');
  // What the client has got before its connection broke, and maybe events that were on their way to it.
  assert.deepEqual(end.slice(0, received(call).length - 2), received(call).slice(2));
  const seqs = end.map(({ id }) => seqOf(id));
  assert.deepEqual(
    seqs,
    seqs.map((_, n) => seqOf(second?.id) + 1 + n),
    'no gap, no repetition',
  );
  const answers = end.filter(({ data }) => data.includes('"id":7'));
  assert.equal(answers.length, 1);
  assert.match(answers[0]?.data ?? '', /"code":"outcome-unknown","executed":"unknown"/);
  assert.equal(await remote.ran('nonce:2:2;'), 1);
});

// REL-19
test('a client that is cut off at random gets each event once, at any replica', OPTIONS, async (t) => {
  t.diagnostic(`LINKSPAN_SEED=${SEED}`);
  const below = random(SEED);
  await using remote = await startRemote();
  await using replicas = await startReplicas(3, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const progress = 120;
  let events = await postForEvents(replicas.url, rpc(7, 'tools/call', act('nonce:3:3;', progress, 15)), session);
  const got: Received[] = [];
  let lastId = '';
  let cuts = 0;
  for (;;) {
    const take = 1 + below(4);
    await events.until((each) => received(each).length >= take || answered(each));
    events.close();
    // Events that have come in the meantime count as cut off.
    const taken = received(events).slice(0, take);
    got.push(...taken);
    lastId = taken.at(-1)?.id ?? lastId;
    if (taken.some(({ data }) => data.includes('"id":7'))) break;
    cuts++;
    events = await resume(urls[below(urls.length)] ?? '', session, lastId);
  }
  assert.ok(cuts >= progress / 5);
  assert.deepEqual(
    got.map(({ id }) => seqOf(id)),
    Array.from({ length: progress + 1 }, (_, n) => n + 1),
  );
  assert.equal(await remote.ran('nonce:3:3;'), 1);
});

// REL-27
test('a stopped owner adds nothing to a stream that another replica has ended', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:4:4;', 200, 100)), session);
  await call.until(({ messages }) => messages.length >= 3);
  replicas.at(0).pause();
  const first = received(call)[0]?.id ?? '';
  const taken = await resume(two, session, first);
  await taken.ended();
  assert.match(received(taken).at(-1)?.data ?? '', /"outcome-unknown"/);
  replicas.at(0).resume();
  await call.ended();
  const again = await resume(one, session, first);
  await again.ended();
  assert.deepEqual(received(again), received(taken));
  assert.ok(!received(call).some(({ data }) => data.includes('"id":7')), 'the old owner has written no answer');
});

// R9
test('a GET stream goes on at another replica under its name', OPTIONS, async () => {
  await using upstream = await SessionServer.start();
  await using replicas = await startReplicas(2, upstream.url);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const before = await getEvents(one, session);
  const call = (url: string, id: number, name: string) =>
    post(url, rpc(id, 'tools/call', { name: `nonce__${name}`, arguments: {} }), session);
  await call(one, 1, 'count');
  await call(one, 2, 'add');
  await before.until(({ messages }) => messages.length >= 1);
  replicas.at(0).kill('SIGKILL');
  await before.ended();
  const after = await resume(two, session, before.lastId);
  assert.equal(after.status, 200);
  await after.until(({ messages }) => messages.length >= 1);
  const ids = [...received(before), ...received(after)].map(({ id }) => id ?? '');
  assert.equal(new Set(ids.map((id) => id.split('.')[0])).size, 1, 'one stream');
  assert.deepEqual(
    ids.map(seqOf),
    ids.map((_, n) => n + 1),
  );
  after.close();
});

// R11
test('after the death of its owner a session goes on with its session at an upstream', OPTIONS, async () => {
  await using upstream = await SessionServer.start();
  await using replicas = await startReplicas(3, upstream.url);
  const { session, urls } = await openAt(replicas);
  const count = async (url: string) =>
    (await post(url, rpc(1, 'tools/call', { name: 'nonce__count', arguments: {} }), session)).text;
  assert.match(await count(urls[1] ?? ''), /"text":"1"/);
  const [served] = upstream.sessions.filter((each) => each.count > 0);
  assert.ok(served !== undefined);
  replicas.at(0).kill('SIGKILL');
  let next = '';
  let passedOn = 0;
  await waitUntil(async () => {
    passedOn = await forwards(replicas, 1);
    // A request on a connection to the dead owner has an unknown outcome.
    next = await count(urls[1] ?? '');
    return !next.includes('"outcome-unknown"');
  });
  assert.match(next, /"text":"2"/);
  assert.doesNotMatch(next, /stateLost/);
  // It is the owner now, and is stopped: its session at the upstream must not end with it.
  const owner = (await forwards(replicas, 1)) === passedOn ? 1 : 2;
  replicas.at(owner).pause();
  let third = '';
  await waitUntil(async () => {
    third = await count(urls[owner === 1 ? 2 : 1] ?? '');
    return third.includes('"result"');
  });
  assert.ok(Number(/"text":"(\d+)"/.exec(third)?.[1]) >= 3, third);
  replicas.at(owner).resume();
  await waitUntil(async () => (await count(urls[owner] ?? '')).includes('"result"'));
  assert.ok(!served.requests.some((request) => request.startsWith('DELETE')), served.requests.join());
  assert.doesNotMatch(await count(urls[1] ?? ''), /stateLost/);
});

/** Returns the number of requests that a replica has passed on. */
async function forwards(replicas: Replicas, index: number): Promise<number> {
  const text = await (await fetch(`${replicas.at(index).operatorUrl}/metrics`)).text();
  return Number(/^linkspan_forwarded_requests_total\{outcome="answered"\} (\d+)$/m.exec(text)?.[1]);
}

// S-003
test('an event id of another session opens a new stream and tells nothing', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:5:5;', 3, 60)), session);
  await call.until(answered);
  const first = received(call)[0]?.id ?? '';
  replicas.at(0).kill('SIGKILL');
  const other = await initialize(two);
  for (const id of [first, first.replace(/^./, (letter) => (letter === 'x' ? 'y' : 'x'))]) {
    const stream = await resume(two, other, id);
    assert.equal(stream.status, 200);
    await post(two, rpc(1, 'ping'), other);
    assert.deepEqual(received(stream), []);
    stream.close();
  }
  const own = await resume(two, session, first);
  await own.until(answered);
});

// R12
test('while Redis is stopped streams go on, and their events reach it later', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  assert.equal((await post(one, rpc(1, 'ping'), session)).status, 200);
  replicas.redis.pause();
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:6:6;', 5, 60)), session);
  await call.until(answered);
  await call.ended();
  replicas.redis.resume();
  const first = received(call)[0]?.id ?? '';
  // The owner has the stream in memory in any case.
  const local = await resume(one, session, first);
  await local.ended();
  assert.deepEqual(received(local), received(call).slice(1));
  // All that has waited is one write.
  const [stream = ''] = first.split('.');
  await waitUntil(async () => (await replicas.redis.keys(`*:ev:*:${stream}`)).length > 0);
  replicas.at(0).kill('SIGKILL');
  const elsewhere = await resume(two, session, first);
  await elsewhere.ended();
  assert.deepEqual(received(elsewhere), received(call).slice(1));
});

// SEC-12
test('the end of a session at any replica removes its events', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:8:8;', 2, 60)), session);
  await call.until(answered);
  assert.ok((await replicas.redis.keys('*:ev:*')).length > 0);
  await send(two, { method: 'DELETE', headers: { 'mcp-session-id': session } });
  await waitUntil(async () => (await replicas.redis.keys('*:ev:*')).length === 0);
});

/** Connects the SDK through the balancer. It resumes streams by itself. */
async function connectResuming(url: string) {
  const reconnectionOptions = {
    initialReconnectionDelay: 100,
    maxReconnectionDelay: 1_000,
    reconnectionDelayGrowFactor: 1.5,
    maxRetries: 100,
  };
  const transport = new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions });
  const stack = new AsyncDisposableStack();
  // The SDK has one timer for all its streams: at its end it stops one, and the others try again until no try is left.
  stack.defer(() => void (reconnectionOptions.maxRetries = 0));
  const { client } = stack.use(await connectSdk1Over(transport, {}));
  return { client, [Symbol.asyncDispose]: () => stack[Symbol.asyncDispose]() };
}

// R9
test('the TypeScript SDK resumes a call by itself when a replica on its way is killed', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(3, `${remote.url}/mcp`);
  await using connected = await connectResuming(replicas.url);
  const seen: number[] = [];
  const { name, arguments: args } = act('nonce:9:9;', 100, 50);
  const calling = connected.client.callTool({ name: String(name), arguments: { ...Object(args) } }, undefined, {
    onprogress: ({ progress }) => seen.push(progress),
    timeout: 2 * PATIENCE_MS,
  });
  await waitUntil(() => seen.length >= 3);
  const owner = await ownerOf(replicas);
  // The balancer may have sent the call to either of the others, or to the owner.
  for (const index of [0, 1, 2].filter((each) => each !== owner)) replicas.at(index).kill('SIGKILL');
  const result = await calling;
  assert.match(JSON.stringify(result.content), /nonce:9:9;/);
  assert.deepEqual(
    seen,
    seen.map((_, n) => (seen[0] ?? 0) + n),
    'no progress was lost or repeated',
  );
  assert.equal(await remote.ran('nonce:9:9;'), 1);
});

/** Returns the only replica that has a session in memory. */
async function ownerOf(replicas: Replicas): Promise<number> {
  const counts = await Promise.all(
    replicas.each.map(async ({ operatorUrl }) => {
      const text = await (await fetch(`${operatorUrl}/metrics`)).text();
      return Number(/^linkspan_sessions (\d+)$/m.exec(text)?.[1]);
    }),
  );
  assert.equal(counts.filter((count) => count === 1).length, 1, counts.join());
  return counts.indexOf(1);
}

// R11
test('the TypeScript SDK hears the truth about a call when the owner is killed', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(3, `${remote.url}/mcp`);
  await using connected = await connectResuming(replicas.url);
  const seen: number[] = [];
  const { name, arguments: args } = act('nonce:10:10;', 2_000, 20);
  const calling = connected.client.callTool({ name: String(name), arguments: { ...Object(args) } }, undefined, {
    onprogress: ({ progress }) => seen.push(progress),
    timeout: 2 * PATIENCE_MS,
  });
  await waitUntil(() => seen.length >= 3);
  replicas.at(await ownerOf(replicas)).kill('SIGKILL');
  await assert.rejects(calling, { code: -31017 });
  assert.equal(await remote.ran('nonce:10:10;'), 1);
  const { name: again, arguments: more } = act('nonce:11:11;', 1, 0);
  const next = await connected.client.callTool({ name: String(again), arguments: { ...Object(more) } });
  assert.match(JSON.stringify(next.content), /nonce:11:11;/, 'the session goes on');
});

// R10
test('a client that resumes while its replica leaves gets the answer from another one', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await startReplicas(2, `${remote.url}/mcp`);
  const { session, urls } = await openAt(replicas);
  const [one = '', two = ''] = urls;
  const call = await postForEvents(one, rpc(7, 'tools/call', act('nonce:12:12;', 100, 50)), session);
  await call.until(({ messages }) => messages.length >= 3);
  const before = received(call);
  call.close();
  replicas.at(0).kill('SIGTERM');
  const after = await resume(two, session, before.at(-1)?.id ?? '');
  await after.until(answered);
  const seqs = [...before, ...received(after)].map(({ id }) => seqOf(id));
  assert.deepEqual(
    seqs,
    seqs.map((_, n) => n + 1),
  );
  assert.match(received(after).at(-1)?.data ?? '', /"result"/);
  assert.equal(await remote.ran('nonce:12:12;'), 1);
});

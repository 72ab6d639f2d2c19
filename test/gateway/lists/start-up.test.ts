import assert from 'node:assert/strict';
import { readdir, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { LOCAL } from '../../../src/policy/principal.ts';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const LIST_CHANGED = 'notifications/tools/list_changed';
/** Longer than a test may take: a wait of this length fails it. */
const FOREVER_MS = 3_600_000;

async function toolNames(client: TestClient): Promise<string[]> {
  const { tools } = await client.result('tools/list');
  assert.ok(Array.isArray(tools));
  return tools.map((tool: { name: string }) => tool.name);
}

/** An upstream that starts when it is released. */
function slow() {
  const { promise, resolve } = Promise.withResolvers<void>();
  const tools = [ECHO];
  return { memory: memoryUpstream({ lists: { tools }, start: () => promise }), release: resolve, tools };
}

function healthy() {
  return memoryUpstream({ lists: { tools: [ECHO] }, capabilities: { tools: {}, logging: {} } });
}

// N-04
test('initialize waits for no upstream, and declares all that the gateway answers', TIMEOUT, async () => {
  const [one, other] = [slow(), slow()];
  await using gateway = await testCore({ one, other }, { lists: { waitMs: FOREVER_MS } });
  const client = await gateway.connect();
  assert.deepEqual(JSON.parse(client.initialized.object('capabilities')?.toString() ?? ''), {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { subscribe: true, listChanged: true },
    logging: {},
    completions: {},
  });
  one.release();
  other.release();
  assert.deepEqual(await toolNames(client), ['one__echo', 'other__echo']);
});

// N-04
test('initialize waits at the endpoint of one upstream that was never listed', TIMEOUT, async () => {
  const hanging = slow();
  const instructed = memoryUpstream({ lists: { tools: [ECHO] }, capabilities: { tools: {}, logging: {} } });
  await using gateway = await testCore({ hanging, up: { memory: instructed } }, { lists: { waitMs: FOREVER_MS } });
  const client = await gateway.connect({ view: 'up' });
  assert.equal(client.initialized.object('capabilities')?.raw('logging'), '{}');
  hanging.release();
});

// N-04
test('a list waits once for an unresponsive upstream, and not after a restart', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const hanging = slow();
  const lists = { waitMs: 50 };
  await using gateway = await testCore({ up: { memory: healthy() }, hanging }, { lists });
  const first = await gateway.connect();
  const listing = toolNames(first);
  // This endpoint waits for the healthy upstream alone.
  await gateway.connect({ view: 'up' });
  assert.deepEqual(await time.passUntil(listing, lists.waitMs), ['up__echo']);
  lists.waitMs = FOREVER_MS;
  const second = await gateway.connect();
  assert.deepEqual(await toolNames(second), ['up__echo']);
  await gateway.restart();
  const third = await gateway.connect();
  assert.deepEqual(await toolNames(third), ['up__echo']);
  const alone = await gateway.connect({ view: 'hanging' });
  assert.deepEqual(await toolNames(alone), []);
  hanging.release();
});

// N-04
test('a list waits for a failed upstream again after it was listed', TIMEOUT, async () => {
  let fails = true;
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    start: () => (fails ? Promise.reject(new Error('does not start')) : Promise.resolve()),
  });
  await using gateway = await testCore({ up: { memory } });
  const first = await gateway.connect();
  assert.deepEqual(await toolNames(first), []);
  fails = false;
  await first.waitForMessage(LIST_CHANGED);
  assert.deepEqual(await toolNames(first), ['up__echo']);
  await gateway.restart();
  assert.deepEqual(await toolNames(await gateway.connect()), ['up__echo']);
});

// N-05
test('lists that arrive one after another are announced together', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const starting = Array.from({ length: 10 }, slow);
  const upstreams = Object.fromEntries(starting.map((one, i) => [`u${i}`, one]));
  await using gateway = await testCore(upstreams, { lists: { waitMs: 0 } });
  const client = await gateway.connect();
  client.notify('notifications/initialized');
  assert.deepEqual(await time.passUntil(toolNames(client), 1), []);
  for (const { release } of starting) {
    release();
    await new Promise(setImmediate);
  }
  const other = await gateway.connect();
  await waitUntil(async () => (await toolNames(other)).length === 10);
  await time.passUntil(client.waitForMessage(LIST_CHANGED), 1);
  time.pass(10_000);
  await new Promise(setImmediate);
  assert.equal((await toolNames(client)).length, 10);
  const announced = client.listened.filter((message) => 'method' in message && message.method === LIST_CHANGED);
  assert.equal(announced.length, 1);
});

// N-05
test('a change that is in the client’s list already is not announced', TIMEOUT, async () => {
  const late = slow();
  await using gateway = await testCore({ up: { memory: healthy() }, late }, { lists: { waitMs: FOREVER_MS } });
  const client = await gateway.connect();
  client.notify('notifications/initialized');
  const listing = toolNames(client);
  late.release();
  assert.deepEqual(await listing, ['up__echo', 'late__echo']);
  late.tools.push({ ...ECHO, name: 'more' });
  late.memory.peers[0]?.send(`{"jsonrpc":"2.0","method":"${LIST_CHANGED}"}`);
  await client.waitForMessage(LIST_CHANGED);
  assert.equal(client.listened.filter((message) => 'method' in message && message.method === LIST_CHANGED).length, 1);
  assert.deepEqual(await toolNames(client), ['up__echo', 'late__echo', 'late__more']);
});

// N-62
test('a client that gives up a list that waits is told when the list has come', TIMEOUT, async () => {
  const late = slow();
  await using gateway = await testCore({ up: { memory: healthy() }, late }, { lists: { waitMs: FOREVER_MS } });
  const client = await gateway.connect();
  const listing = client.send('tools/list', {}, { id: '7' });
  await waitUntil(() => late.memory.starts > 0);
  client.notify('notifications/cancelled', { requestId: 7 });
  late.release();
  await client.waitForMessage(LIST_CHANGED);
  assert.equal((await listing).answer, undefined);
  assert.deepEqual(await toolNames(client), ['up__echo', 'late__echo']);
});

// N-62
test('clients of other capabilities are told of an upstream that did not start', TIMEOUT, async () => {
  const failing = Promise.withResolvers<void>();
  let isUp = false;
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    start: async () => {
      if (memory.starts === 2) failing.resolve();
      await failing.promise;
      if (!isUp) throw new Error('not yet');
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const capabilities = [{ roots: {} }, { elicitation: {} }];
  const clients = await Promise.all(capabilities.map((own) => gateway.connect({ capabilities: own })));
  assert.deepEqual(await Promise.all(clients.map(toolNames)), [[], []]);
  // Each of them has asked for the lists twice, and one was repeated.
  await memory.until(() => memory.starts > 4 || undefined);
  isUp = true;
  for (const client of clients) {
    await client.waitForMessage(LIST_CHANGED);
    assert.deepEqual(await toolNames(client), ['up__echo']);
  }
});

test('the gauge of listed tools is right at each scrape, for every endpoint', TIMEOUT, async () => {
  const late = slow();
  await using gateway = await testCore({ up: { memory: healthy() }, late }, { lists: { waitMs: FOREVER_MS } });
  const counts = async () =>
    (await gateway.metrics.text()).split('\n').filter((line) => line.startsWith('linkspan_catalog_tools{'));
  const before = await counts();
  assert.ok(before.includes('linkspan_catalog_tools{view="_merged",era="legacy"} 0'), before.join('\n'));
  late.release();
  await toolNames(await gateway.connect());
  const after = await counts();
  for (const [view, count] of [
    ['_merged', 2],
    ['up', 1],
    ['late', 1],
  ] as const) {
    assert.ok(after.includes(`linkspan_catalog_tools{view="${view}",era="legacy"} ${count}`), after.join('\n'));
  }
});

test('the gauge counts the tools that an upstream lists for one principal', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: healthy(), credentials: 'principal' } });
  await toolNames(await gateway.connect({ principal: { ...LOCAL, key: 'anna' } }));
  assert.match(await gateway.metrics.text(), /^linkspan_catalog_tools\{view="_merged",era="legacy"\} 1$/m);
});

/** Restarts the gateway on lists that an earlier process has read. */
async function restartWith(tools: object[]) {
  const memory = memoryUpstream({ lists: { tools }, request: (peer, request) => peer.send(result(request, {})) });
  const gateway = await testCore({ up: { memory } });
  assert.deepEqual(await toolNames(await gateway.connect()), ['up__echo']);
  await gateway.restart();
  return { memory, gateway };
}

// N-07
test('no process is started after a restart for lists that are fresh on disk', TIMEOUT, async () => {
  const { memory, gateway } = await restartWith([ECHO]);
  await using _gateway = gateway;
  const [before, client] = [memory.starts, await gateway.connect()];
  assert.deepEqual(await toolNames(client), ['up__echo']);
  assert.equal(memory.starts, before);
  await client.result('tools/call', toolCall('up__echo'));
  assert.equal(memory.starts, before + 1, 'the process that serves the call reads the lists too');
});

// N-07
test('lists that changed meanwhile are announced when the upstream is first used', TIMEOUT, async () => {
  const tools: object[] = [ECHO];
  const { gateway } = await restartWith(tools);
  await using _gateway = gateway;
  tools.push({ ...ECHO, name: 'later' });
  const client = await gateway.connect();
  assert.deepEqual(await toolNames(client), ['up__echo']);
  await client.result('tools/call', toolCall('up__echo'));
  await client.waitForMessage(LIST_CHANGED);
  assert.deepEqual(await toolNames(client), ['up__echo', 'up__later']);
});

// N-07
test('a call of a name that fresh lists on disk lack starts the upstream', TIMEOUT, async () => {
  const tools: object[] = [ECHO];
  const { memory, gateway } = await restartWith(tools);
  await using _gateway = gateway;
  tools.push({ ...ECHO, name: 'later' });
  const [before, client] = [memory.starts, await gateway.connect()];
  assert.deepEqual(await toolNames(client), ['up__echo']);
  await client.result('tools/call', toolCall('up__later'));
  assert.equal(memory.starts, before + 1);
});

// N-06
test('a name that no list has is unknown, also right after a restart', TIMEOUT, async () => {
  const { memory, gateway } = await restartWith([ECHO]);
  await using _gateway = gateway;
  const [before, client] = [memory.starts, await gateway.connect()];
  for (const name of ['up__none', 'up__other']) {
    await assert.rejects(client.result('tools/call', toolCall(name)), /Unknown tool: /);
  }
  assert.equal(memory.starts, before + 1);
});

// N-07
test('a process is started for lists that are old on disk', TIMEOUT, async () => {
  const { memory, gateway } = await restartWith([ECHO]);
  await using _gateway = gateway;
  const dir = join(gateway.config.stateDir, 'offers');
  const old = (await readdir(dir)).filter((name) => name.endsWith('.listed'));
  for (const name of old) await utimes(join(dir, name), 0, 1);
  const before = memory.starts;
  await gateway.restart();
  await gateway.connect();
  await memory.until(() => memory.starts > before || undefined);
});

import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const LIST_CHANGED = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}';
const named = (name: string) => ({ ...ECHO, name });

async function toolNames(client: TestClient): Promise<string[]> {
  const { tools } = await client.result('tools/list');
  assert.ok(Array.isArray(tools));
  return tools.map((tool: { name: string }) => tool.name);
}

/** Returns the connection of this client. */
async function ownPeer(memory: MemoryUpstream, client: TestClient, tool = 'up__echo'): Promise<Peer> {
  const before = new Map(memory.peers.map((peer) => [peer, peer.received.length]));
  await client.result('tools/call', toolCall(tool));
  const peer = memory.peers.find((one) =>
    one.received.slice(before.get(one) ?? 0).some((m) => m.kind === 'request' && m.method === 'tools/call'),
  );
  assert.ok(peer);
  return peer;
}

/** An upstream whose tools can be added to, for one connection or for all. */
function growing() {
  const extra = new Map<Peer, object[]>();
  const everywhere: object[] = [];
  const memory = memoryUpstream({
    listsOf: (peer) => ({ tools: [ECHO, ...everywhere, ...(extra.get(peer) ?? [])] }),
  });
  return { memory, extra, everywhere };
}

// D4
test('a change on a session’s own connection is announced to that session only', TIMEOUT, async () => {
  const { memory, extra } = growing();
  await using gateway = await testCore({ up: { memory } });
  const [a, b] = [await gateway.connect(), await gateway.connect()];
  const own = await ownPeer(memory, a);
  await ownPeer(memory, b);
  extra.set(own, [named('new')]);
  own.send(LIST_CHANGED);
  await a.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(await toolNames(a), ['up__echo', 'up__new']);
  assert.deepEqual(await toolNames(b), ['up__echo']);
  assert.deepEqual(b.listened, []);
});

// D4
test('a change of a shared upstream is announced at the endpoints that have it', TIMEOUT, async () => {
  const { memory, everywhere } = growing();
  const other = memoryUpstream({ lists: { tools: [ECHO] } });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' }, other: { memory: other } });
  const merged = await gateway.connect();
  const alone = await gateway.connect({ view: 'up' });
  const elsewhere = await gateway.connect({ view: 'other' });
  everywhere.push(named('new'));
  memory.peers[0]?.send(LIST_CHANGED);
  await merged.waitForMessage('notifications/tools/list_changed');
  await alone.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(elsewhere.listened, []);
  assert.ok((await toolNames(merged)).includes('up__new'));
  assert.deepEqual(await toolNames(alone), ['echo', 'new']);
});

test('changes within a short time are announced once', TIMEOUT, async () => {
  const { memory, everywhere } = growing();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  for (const name of ['b', 'c', 'd']) {
    everywhere.push(named(name));
    memory.peers[0]?.send(LIST_CHANGED);
  }
  await client.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(await toolNames(client), ['up__echo', 'up__b', 'up__c', 'up__d']);
  everywhere.push(named('e'));
  memory.peers[0]?.send(LIST_CHANGED);
  await client.until(() => (client.listened.length >= 2 ? true : undefined));
  assert.equal(client.listened.length, 2);
});

test('a change without effect is announced together with the next one', TIMEOUT, async () => {
  const { memory, everywhere } = growing();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  const lists = memory.requests('tools/list').length;
  memory.peers[0]?.send(LIST_CHANGED);
  await memory.until(() => memory.requests('tools/list')[lists]);
  everywhere.push(named('new'));
  memory.peers[0]?.send(LIST_CHANGED);
  await client.waitForMessage('notifications/tools/list_changed');
  assert.equal(client.listened.length, 1);
});

test('a change is announced when the client opens its stream', TIMEOUT, async () => {
  const { memory, everywhere } = growing();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const [late, witness] = [await gateway.connect({ listens: false }), await gateway.connect()];
  everywhere.push(named('new'));
  memory.peers[0]?.send(LIST_CHANGED);
  await witness.waitForMessage('notifications/tools/list_changed');
  late.listen();
  await late.waitForMessage('notifications/tools/list_changed');
});

// REL-16
test('after a lost connection the session has the lists for all clients again', TIMEOUT, async () => {
  const { memory, extra } = growing();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const own = await ownPeer(memory, client);
  extra.set(own, [named('unlocked')]);
  own.send(LIST_CHANGED);
  await client.waitForMessage('notifications/tools/list_changed');
  own.crash();
  await client.result('tools/call', toolCall('up__echo'));
  assert.deepEqual(await toolNames(client), ['up__echo']);
});

test('tools for clients with a capability are listed for those clients only', TIMEOUT, async () => {
  const memory = memoryUpstream({
    listsOf: ({ capabilities }) => ({
      tools: capabilities.raw('sampling') === undefined ? [ECHO] : [ECHO, named('ask')],
    }),
  });
  await using gateway = await testCore({ up: { memory } });
  const able = await gateway.connect({ capabilities: { sampling: {} } });
  const plain = await gateway.connect();
  assert.deepEqual(await toolNames(able), ['up__echo', 'up__ask']);
  assert.deepEqual(await toolNames(plain), ['up__echo']);
  assert.deepEqual(plain.listened, []);
});

// D4
test('2,500 tools come in pages, and a cursor works for its client only', TIMEOUT, async () => {
  const tools = Array.from({ length: 2_500 }, (_, n) => named(`tool${n}`));
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools } }) } });
  const client = await gateway.connect();
  const names: unknown[] = [];
  const cursors: unknown[] = [];
  let cursor: unknown;
  do {
    const page = await client.result('tools/list', cursor === undefined ? {} : { cursor });
    assert.ok(Array.isArray(page['tools']));
    names.push(...page['tools'].map((tool: { name: string }) => tool.name));
    cursor = page['nextCursor'];
    if (cursor !== undefined) cursors.push(cursor);
  } while (cursor !== undefined);
  assert.deepEqual(
    names,
    tools.map(({ name }) => `up__${name}`),
  );
  assert.equal(cursors.length, 2);

  const strange = { key: 'strange', label: 'strange', scopes: [] };
  const others = [await gateway.connect({ principal: strange }), await gateway.connect({ view: 'up' })];
  const attempts = [
    ...others.map((other) => other.request('tools/list', { cursor: cursors[0] })),
    client.request('prompts/list', { cursor: cursors[0] }),
    client.request('tools/list', { cursor: `${String(cursors[0])}x` }),
    client.request('tools/list', { cursor: 'made up' }),
    client.request('tools/list', { cursor: 7 }),
  ];
  for (const { answer } of await Promise.all(attempts)) {
    assert.ok(answer.kind === 'error');
    assert.equal(answer.error.code, -32602);
  }
});

// M-003
test('all pages are of one list, though the list changes meanwhile', TIMEOUT, async () => {
  const tools = Array.from({ length: 1_500 }, (_, n) => named(`tool${n}`));
  const everywhere: object[] = [...tools];
  const memory = memoryUpstream({ listsOf: () => ({ tools: everywhere }) });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  const { nextCursor: cursor } = await client.result('tools/list');
  everywhere.unshift(named('first'));
  memory.peers[0]?.send(LIST_CHANGED);
  await client.waitForMessage('notifications/tools/list_changed');
  const { tools: rest } = await client.result('tools/list', { cursor });
  assert.ok(Array.isArray(rest));
  assert.deepEqual(rest.at(0), named('up__tool1000'));
  assert.equal(rest.length, 500);
});

// M-009
test('a list of an upstream without a cursor is read by one request', TIMEOUT, async () => {
  const cursors: (string | undefined)[] = [];
  const memory = memoryUpstream({
    isRaw: true,
    request: (peer, request) => {
      if (request.method === 'initialize') {
        return peer.send(
          result(request, { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x' } }),
        );
      }
      peer.send(result(request, {}));
    },
    listsOf: (peer) => {
      const request = peer.received.at(-1);
      const cursor = request?.kind === 'request' ? request.params?.string('cursor') : undefined;
      cursors.push(cursor);
      return { tools: [named(`t${cursors.length}`)] };
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  assert.deepEqual(await toolNames(client), ['up__t1']);
  assert.deepEqual(cursors, [undefined]);
});

// G5
test('clients with ever new capabilities leave a bounded number of files', TIMEOUT, async () => {
  const memory = memoryUpstream({
    listsOf: ({ capabilities }) => ({ tools: [named(`t${capabilities.toString().length}`)] }),
  });
  await using gateway = await testCore({ up: { memory } });
  for (let n = 1; n <= 30; n++) {
    const client = await gateway.connect({ capabilities: { sampling: { x: 'x'.repeat(n) } } });
    await client.result('tools/list');
    await gateway.core.gateway.endSession(client.session);
  }
  await gateway.core.stop();
  const files = await readdir(join(gateway.config.stateDir, 'offers'));
  assert.ok(files.length <= 17, `${files.length} files`);
});

// REL-15
test('a list waits a bounded time for an upstream that hangs', TIMEOUT, async () => {
  let isHung = false;
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    start: () => (isHung ? new Promise(() => undefined) : Promise.resolve()),
  });
  const other = memoryUpstream({ lists: { tools: [ECHO] } });
  const timeouts = {
    startMs: 60_000,
    connectMs: 2_000,
    firstByteMs: 2_000,
    callMs: 2_000,
    toolMs: 2_000,
    maxMs: 5_000,
  };
  await using gateway = await testCore({ up: { memory, timeouts }, other: { memory: other } });
  // The lists for all clients are known, so that only those for the capabilities of the next client are missing.
  assert.deepEqual(await toolNames(await gateway.connect()), ['up__echo', 'other__echo']);
  isHung = true;
  const client = await gateway.connect({ capabilities: { sampling: {} } });
  assert.deepEqual(await toolNames(client), ['up__echo', 'other__echo']);
  assert.deepEqual((await client.result('prompts/list'))['prompts'], []);
});

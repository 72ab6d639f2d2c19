import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { META } from '../../src/protocol/meta.ts';
import { testCore, toolCall } from '../support/core.ts';
import { modernUpstream, type ServerScript } from '../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest, type ModernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 20_000 };
const URI = 'up+test://a';
const HTTP = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
const UPDATED = 'notifications/resources/updated';
const UNTIL_MS = 5_000;

function older(tools: () => object[] = () => []): MemoryUpstream {
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, logging: {} },
    listsOf: () => ({ tools: tools(), resources: [{ uri: 'test://a', name: 'a' }] }),
    request: (peer, request) => {
      const isRefused = request.params?.string('uri') === 'test://refused';
      peer.say(
        isRefused ? `{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32602,"message":"No"}}` : result(request, {}),
      );
    },
  });
  return memory;
}

function named(said: readonly Message[], method: string): Record<string, unknown>[] {
  return said.flatMap((one) =>
    'method' in one && one.method === method ? [JSON.parse(one.params?.toString() ?? '{}')] : [],
  );
}

async function until(holds: () => boolean): Promise<void> {
  const deadline = performance.now() + UNTIL_MS;
  while (!holds()) {
    assert.ok(performance.now() < deadline, `not within ${UNTIL_MS} ms: ${holds.toString()}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
}

async function acknowledged({ said }: ModernRequest): Promise<unknown> {
  await until(() => said.length > 0);
  const [first] = said;
  assert.ok(first !== undefined && 'method' in first);
  assert.equal(first.method, ACKNOWLEDGED);
  return named(said, ACKNOWLEDGED)[0]?.['notifications'];
}

function updates(memory: MemoryUpstream, uri = 'test://a'): void {
  for (const peer of memory.open) peer.say(JSON.stringify({ jsonrpc: '2.0', method: UPDATED, params: { uri } }));
}

suite('X-032 X-036 subscriptions/listen', () => {
  for (const id of ['7', '"7"', '"a b"']) {
    test(`with id ${id} is acknowledged first, and has the id in every message`, TIMEOUT, async () => {
      const memory = older();
      await using gateway = await testCore({ up: { memory } });
      const notifications = { resourceSubscriptions: [URI, 'up+test://refused', 'nobody://a'], toolsListChanged: true };
      const listen = modernRequest(gateway, 'subscriptions/listen', { notifications }, { id });
      assert.deepEqual(await acknowledged(listen), { toolsListChanged: true, resourceSubscriptions: [URI] });
      updates(memory);
      await until(() => named(listen.said, UPDATED).length === 1);
      listen.call.close();
      const { result: ended } = await listen.reply;
      assert.partialDeepStrictEqual(ended, { resultType: 'complete' });
      const metas = listen.said.map((one) => ('params' in one ? one.params?.object('_meta') : undefined));
      for (const meta of metas) assert.equal(meta?.raw(META.subscriptionId), id);
      assert.ok(JSON.stringify(ended?.['_meta']).includes(`"${META.subscriptionId}":${id}`));
    });
  }

  test('X-033 sends only the requested notifications', TIMEOUT, async () => {
    let tools: object[] = [];
    const memory = older(() => tools);
    await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
    const wants = (notifications: object) => modernRequest(gateway, 'subscriptions/listen', { notifications });
    const [lists, updated, nothing] = [
      wants({ toolsListChanged: true }),
      wants({ resourceSubscriptions: [URI], toolsListChanged: false }),
      wants({}),
    ];
    for (const one of [lists, updated, nothing]) await acknowledged(one);
    tools = [{ name: 'new', inputSchema: { type: 'object' } }];
    for (const peer of memory.open) peer.say('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    updates(memory);
    await until(() => lists.said.length === 2 && updated.said.length === 2);
    for (const one of [lists, updated, nothing]) one.call.close();
    for (const one of [lists, updated, nothing]) await one.reply;
    const methods = (one: ModernRequest) =>
      one.said.flatMap((message) => ('method' in message ? [message.method] : []));
    assert.deepEqual(methods(lists), [ACKNOWLEDGED, 'notifications/tools/list_changed']);
    assert.deepEqual(methods(updated), [ACKNOWLEDGED, UPDATED]);
    assert.deepEqual(methods(nothing), [ACKNOWLEDGED]);
  });

  test('X-034 subscribes at a legacy upstream once, and unsubscribes after the last listener', TIMEOUT, async () => {
    const memory = older();
    await using gateway = await testCore({ up: { memory } });
    const listen = () =>
      modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: [URI] } });
    const [a, b] = [listen(), listen()];
    for (const one of [a, b]) assert.deepEqual(await acknowledged(one), { resourceSubscriptions: [URI] });
    assert.equal(memory.requests('resources/subscribe').length, 1);
    a.call.cancel('gone');
    await a.reply;
    updates(memory);
    await until(() => named(b.said, UPDATED).length === 1);
    assert.equal(memory.requests('resources/unsubscribe').length, 0);
    b.call.cancel('gone');
    await b.reply;
    await memory.until(() => memory.requests('resources/unsubscribe')[0]);
    assert.equal(memory.requests('resources/subscribe').length, 1);
  });

  test('X-034 keeps a subscription for a stream that opens while the last one ends', TIMEOUT, async () => {
    const slow = memoryUpstream({
      capabilities: { resources: { subscribe: true } },
      lists: { resources: [{ uri: 'test://b', name: 'b' }] },
      request: () => undefined,
    });
    const memory = older();
    await using gateway = await testCore({ up: { memory }, slow: { memory: slow } });
    const listen = (...uris: string[]) =>
      modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: uris } });
    const first = listen(URI);
    await acknowledged(first);
    const second = listen(URI, 'slow+test://b');
    const waits = await slow.until(() => slow.requests('resources/subscribe')[0]);
    first.call.cancel('gone');
    await first.reply;
    for (const peer of slow.open) peer.say(result(waits, {}));
    assert.deepEqual(await acknowledged(second), { resourceSubscriptions: [URI, 'slow+test://b'] });
    updates(memory);
    await until(() => named(second.said, UPDATED).length === 1);
    assert.equal(memory.requests('resources/unsubscribe').length, 0);
  });

  test('X-034 a client that disconnects while it is being subscribed leaves no subscription', TIMEOUT, async () => {
    const memory = older();
    await using gateway = await testCore({ up: { memory } });
    const notifications = { resourceSubscriptions: [URI] };
    const listen = modernRequest(gateway, 'subscriptions/listen', { notifications });
    await memory.until(() => memory.requests('resources/subscribe')[0]);
    listen.call.cancel('gone');
    await listen.reply;
    await memory.until(() => memory.requests('resources/unsubscribe')[0]);
  });
});

suite('X-035 a legacy client that subscribes at a modern server', () => {
  const SCRIPT: ServerScript = {
    capabilities: { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, logging: {} },
    tools: [{ name: 't', inputSchema: { type: 'object' } }],
    resources: ['a', 'b'].map((name) => ({ uri: `test://${name}`, name })),
  };

  test('succeeds only if the upstream honours the subscription', TIMEOUT, async () => {
    await using up = await modernUpstream({
      ...SCRIPT,
      honoured: (filter) => {
        const wanted = filter['resourceSubscriptions'];
        return Array.isArray(wanted) ? { resourceSubscriptions: wanted.filter((uri) => uri === 'test://a') } : {};
      },
    });
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    assert.equal((await client.request('resources/subscribe', { uri: URI })).answer.kind, 'result');
    assert.equal((await client.request('resources/subscribe', { uri: 'up+test://b' })).answer.kind, 'error');
    await until(() => up.listens().length > 0);
    up.listens().at(-1)?.tell(UPDATED, { uri: 'test://a' });
    await client.heard(UPDATED);
  });

  test('gets updates of all resources after a second subscription', TIMEOUT, async () => {
    await using up = await modernUpstream(SCRIPT);
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    for (const uri of [URI, 'up+test://b']) await client.result('resources/subscribe', { uri });
    await until(() => up.listens().length === 1);
    for (const uri of ['test://a', 'test://b']) up.tell(UPDATED, { uri });
    await until(() => named(client.listened, UPDATED).length === 2);
    assert.deepEqual(named(client.listened, UPDATED), [{ uri: URI }, { uri: 'up+test://b' }]);
  });

  test('gets an update under the published URI after a broken stream', TIMEOUT, async () => {
    await using up = await modernUpstream(SCRIPT);
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    await client.result('resources/subscribe', { uri: URI });
    const before = up.requests('subscriptions/listen').length;
    for (const listen of up.listens()) listen.breakOff();
    await client.heard(UPDATED);
    assert.deepEqual(named(client.listened, UPDATED), [{ uri: URI }]);
    const again = up.requests('subscriptions/listen').slice(before).at(-1);
    assert.partialDeepStrictEqual(again?.params, { notifications: { resourceSubscriptions: ['test://a'] } });
  });
});

suite('X-029 log messages reach a modern client', () => {
  const logging = (isAttributed: boolean): MemoryUpstream =>
    memoryUpstream({
      capabilities: { tools: {}, logging: {} },
      lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
      request: (peer, request) => {
        if (request.method === 'tools/call') {
          for (const level of ['debug', 'warning', 'error']) {
            const params = { level, data: request.params?.object('arguments')?.string('nonce') };
            const text = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params });
            peer.say(text, isAttributed ? Number(request.id) : undefined);
          }
        }
        peer.say(result(request, { content: [] }));
      },
    });
  const levels = ({ said }: ModernRequest) => named(said, 'notifications/message').map(({ level }) => level);
  const call = (gateway: Parameters<typeof modernRequest>[0], nonce: string, options: object) =>
    modernRequest(gateway, 'tools/call', toolCall('up__t', { nonce }), options);

  for (const isAttributed of [true, false]) {
    const how = isAttributed ? 'where the server says what they are about' : 'on a connection of its own';
    test(`from the level in its request, or none without a level, ${how}`, TIMEOUT, async () => {
      const where = isAttributed ? { target: HTTP } : {};
      await using gateway = await testCore({ up: { memory: logging(isAttributed), ...where } });
      const wants = call(gateway, 'a', { logLevel: 'warning' });
      await wants.reply;
      assert.deepEqual(levels(wants), ['warning', 'error']);
      const quiet = call(gateway, 'b', {});
      await quiet.reply;
      assert.deepEqual(levels(quiet), []);
      const loud = call(gateway, 'c', { logLevel: 'debug' });
      await loud.reply;
      assert.deepEqual(levels(loud), ['debug', 'warning', 'error']);
    });
  }

  test('on the stream of their request only', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: logging(true), target: HTTP } });
    const calls = ['a', 'b', 'c'].map((nonce) => ({ nonce, call: call(gateway, nonce, { logLevel: 'error' }) }));
    for (const { nonce, call: one } of calls) {
      await one.reply;
      assert.deepEqual(
        named(one.said, 'notifications/message').map(({ data }) => data),
        [nonce],
      );
    }
  });

  test('never from a shared connection, where the recipient is ambiguous', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: logging(false), isolation: 'shared' } });
    const wants = call(gateway, 'a', { logLevel: 'debug' });
    await wants.reply;
    assert.deepEqual(wants.said, []);
  });
});

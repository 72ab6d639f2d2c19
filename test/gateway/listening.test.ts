import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { META } from '../../src/protocol/meta.ts';
import { testCore, toolCall } from '../support/core.ts';
import { modernUpstream, type ServerScript } from '../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest, type ModernRequest } from '../support/modern-client.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'up+test://a';
const HTTP = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
const UPDATED = 'notifications/resources/updated';

function older(tools: () => object[] = () => []): MemoryUpstream {
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, logging: {} },
    listsOf: () => ({ tools: tools(), resources: [{ uri: 'test://a', name: 'a' }] }),
    request: (peer, request) => {
      const isRefused = request.params?.string('uri') === 'test://refused';
      peer.send(
        isRefused ? `{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32602,"message":"No"}}` : result(request, {}),
      );
    },
  });
  return memory;
}

/** An upstream that answers its subscriptions when the test says so. */
function slowToSubscribe(): MemoryUpstream & { answer(): void } {
  const held: (() => void)[] = [];
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: 'test://b', name: 'b' }] },
    request: (peer, request) => void held.push(() => peer.send(result(request, {}))),
  });
  const answer = () => {
    for (const one of held) one();
  };
  return Object.assign(memory, { answer });
}

function named(messages: readonly Message[], method: string): Record<string, unknown>[] {
  return messages.flatMap((one) =>
    'method' in one && one.method === method ? [JSON.parse(one.params?.toString() ?? '{}')] : [],
  );
}

async function waitForAcknowledgement({ messages }: ModernRequest): Promise<unknown> {
  await waitUntil(() => messages.length > 0);
  const [first] = messages;
  assert.ok(first !== undefined && 'method' in first);
  assert.equal(first.method, ACKNOWLEDGED);
  return named(messages, ACKNOWLEDGED)[0]?.['notifications'];
}

function updates(memory: MemoryUpstream, uri = 'test://a'): void {
  for (const peer of memory.open) peer.send(JSON.stringify({ jsonrpc: '2.0', method: UPDATED, params: { uri } }));
}

// X-032 X-036
suite('subscriptions/listen', () => {
  for (const id of ['7', '"7"', '"a b"']) {
    test(`with id ${id} is acknowledged first, and has the id in every message`, TIMEOUT, async () => {
      const memory = older();
      await using gateway = await testCore({ up: { memory } });
      const notifications = { resourceSubscriptions: [URI, 'up+test://refused', 'nobody://a'], toolsListChanged: true };
      const listen = modernRequest(gateway, 'subscriptions/listen', { notifications }, { id });
      assert.deepEqual(await waitForAcknowledgement(listen), { toolsListChanged: true, resourceSubscriptions: [URI] });
      updates(memory);
      await waitUntil(() => named(listen.messages, UPDATED).length === 1);
      listen.call.close();
      const { result: ended } = await listen.reply;
      assert.partialDeepStrictEqual(ended, { resultType: 'complete' });
      const metas = listen.messages.map((one) => ('params' in one ? one.params?.object('_meta') : undefined));
      for (const meta of metas) assert.equal(meta?.raw(META.subscriptionId), id);
      assert.ok(JSON.stringify(ended?.['_meta']).includes(`"${META.subscriptionId}":${id}`));
    });
  }

  //
  test('sends only the requested notifications', TIMEOUT, async () => {
    let tools: object[] = [];
    const memory = older(() => tools);
    await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
    const wants = (notifications: object) => modernRequest(gateway, 'subscriptions/listen', { notifications });
    const [lists, updated, nothing] = [
      wants({ toolsListChanged: true }),
      wants({ resourceSubscriptions: [URI], toolsListChanged: false }),
      wants({}),
    ];
    for (const one of [lists, updated, nothing]) await waitForAcknowledgement(one);
    tools = [{ name: 'new', inputSchema: { type: 'object' } }];
    for (const peer of memory.open) peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    updates(memory);
    await waitUntil(() => lists.messages.length === 2 && updated.messages.length === 2);
    for (const one of [lists, updated, nothing]) one.call.close();
    for (const one of [lists, updated, nothing]) await one.reply;
    const methods = (one: ModernRequest) =>
      one.messages.flatMap((message) => ('method' in message ? [message.method] : []));
    assert.deepEqual(methods(lists), [ACKNOWLEDGED, 'notifications/tools/list_changed']);
    assert.deepEqual(methods(updated), [ACKNOWLEDGED, UPDATED]);
    assert.deepEqual(methods(nothing), [ACKNOWLEDGED]);
  });

  //
  test('a resource named without its prefix has that name in its updates', TIMEOUT, async () => {
    const memory = older();
    await using gateway = await testCore({ up: { memory } });
    const notifications = { resourceSubscriptions: ['test://a'] };
    const listen = modernRequest(gateway, 'subscriptions/listen', { notifications });
    assert.deepEqual(await waitForAcknowledgement(listen), { resourceSubscriptions: ['test://a'] });
    updates(memory);
    updates(memory, 'test://a/part');
    await waitUntil(() => named(listen.messages, UPDATED).length === 2);
    const uris = named(listen.messages, UPDATED).map((params) => params['uri']);
    assert.deepEqual(new Set(uris), new Set(['test://a', 'up+test://a/part']));
    listen.call.close();
    await listen.reply;
  });

  //
  test('subscribes at a legacy upstream once, and unsubscribes after the last listener', TIMEOUT, async () => {
    const memory = older();
    await using gateway = await testCore({ up: { memory } });
    const listen = () =>
      modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: [URI] } });
    const [a, b] = [listen(), listen()];
    for (const one of [a, b]) assert.deepEqual(await waitForAcknowledgement(one), { resourceSubscriptions: [URI] });
    assert.equal(memory.requests('resources/subscribe').length, 1);
    a.call.cancel('gone');
    await a.reply;
    updates(memory);
    await waitUntil(() => named(b.messages, UPDATED).length === 1);
    assert.equal(memory.requests('resources/unsubscribe').length, 0);
    b.call.cancel('gone');
    await b.reply;
    await memory.until(() => memory.requests('resources/unsubscribe')[0]);
    assert.equal(memory.requests('resources/subscribe').length, 1);
  });

  //
  test('sends what changes between a subscription and the acknowledgement after it', TIMEOUT, async () => {
    let tools: object[] = [];
    const [memory, slow] = [older(() => tools), slowToSubscribe()];
    await using gateway = await testCore({ up: { memory, isolation: 'shared' }, slow: { memory: slow } });
    const resourceSubscriptions = ['test://a', 'slow+test://b'];
    const notifications = { toolsListChanged: true, resourceSubscriptions };
    const listen = modernRequest(gateway, 'subscriptions/listen', { notifications });
    await memory.until(() => memory.requests('resources/subscribe')[0]);
    await slow.until(() => slow.requests('resources/subscribe')[0]);
    // What others of the same client subscribe to is not for this stream.
    const other = modernRequest(gateway, 'subscriptions/listen', {
      notifications: { toolsListChanged: true, resourceSubscriptions: ['up+test://other'] },
    });
    await waitForAcknowledgement(other);
    tools = [{ name: 'new', inputSchema: { type: 'object' } }];
    for (const peer of memory.open) peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    for (const uri of ['test://other', 'test://a', 'test://a']) updates(memory, uri);
    await waitUntil(() => other.messages.length === 3);
    assert.deepEqual(listen.messages, []);
    slow.answer();
    assert.deepEqual(await waitForAcknowledgement(listen), notifications);
    await waitUntil(() => listen.messages.length === 3);
    assert.equal(named(listen.messages, 'notifications/tools/list_changed').length, 1);
    assert.deepEqual(
      named(listen.messages, UPDATED).map(({ uri }) => uri),
      ['test://a'],
    );
  });

  //
  test('keeps a subscription for a stream that opens while the last one ends', TIMEOUT, async () => {
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
    await waitForAcknowledgement(first);
    const second = listen(URI, 'slow+test://b');
    const waits = await slow.until(() => slow.requests('resources/subscribe')[0]);
    first.call.cancel('gone');
    await first.reply;
    for (const peer of slow.open) peer.send(result(waits, {}));
    assert.deepEqual(await waitForAcknowledgement(second), { resourceSubscriptions: [URI, 'slow+test://b'] });
    updates(memory);
    await waitUntil(() => named(second.messages, UPDATED).length === 1);
    assert.equal(memory.requests('resources/unsubscribe').length, 0);
  });

  //
  test('a client that disconnects while it is being subscribed leaves no subscription', TIMEOUT, async () => {
    const memory = older();
    await using gateway = await testCore({ up: { memory } });
    const notifications = { resourceSubscriptions: [URI] };
    const listen = modernRequest(gateway, 'subscriptions/listen', { notifications });
    await memory.until(() => memory.requests('resources/subscribe')[0]);
    listen.call.cancel('gone');
    await listen.reply;
    await memory.until(() => memory.requests('resources/unsubscribe')[0]);
  });

  test('a client that disconnects while lists are read is not subscribed', TIMEOUT, async () => {
    const memory = older();
    const reading = Promise.withResolvers<void>();
    const slow = memoryUpstream({ lists: { tools: [] }, hold: () => reading.promise });
    await using gateway = await testCore({ up: { memory }, slow: { memory: slow } });
    const listen = (uri: string) =>
      modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: [uri] } });
    const gone = listen('up+test://gone');
    await slow.until(() => slow.peers[0]);
    gone.call.cancel('gone');
    await gone.reply;
    reading.resolve();
    await waitForAcknowledgement(listen(URI));
    const subscribed = memory.requests('resources/subscribe').map(({ params }) => params?.string('uri'));
    assert.deepEqual(subscribed, ['test://a']);
  });
});

//
suite('a legacy client that subscribes at a modern server', () => {
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
    await waitUntil(() => up.listens().length > 0);
    up.listens().at(-1)?.notifySubscriber(UPDATED, { uri: 'test://a' });
    await client.waitForMessage(UPDATED);
  });

  test('gets updates of all resources after a second subscription', TIMEOUT, async () => {
    await using up = await modernUpstream(SCRIPT);
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    for (const uri of [URI, 'up+test://b']) await client.result('resources/subscribe', { uri });
    await waitUntil(() => up.listens().length === 1);
    for (const uri of ['test://a', 'test://b']) up.notify(UPDATED, { uri });
    await waitUntil(() => named(client.listened, UPDATED).length === 2);
    assert.deepEqual(named(client.listened, UPDATED), [{ uri: URI }, { uri: 'up+test://b' }]);
  });

  test('gets an update under the published URI after a broken stream', TIMEOUT, async () => {
    await using up = await modernUpstream(SCRIPT);
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    await client.result('resources/subscribe', { uri: URI });
    const before = up.requests('subscriptions/listen').length;
    for (const listen of up.listens()) listen.breakOff();
    await client.waitForMessage(UPDATED);
    assert.deepEqual(named(client.listened, UPDATED), [{ uri: URI }]);
    const again = up.requests('subscriptions/listen').slice(before).at(-1);
    assert.partialDeepStrictEqual(again?.params, { notifications: { resourceSubscriptions: ['test://a'] } });
  });
});

//
suite('log messages reach a modern client', () => {
  const logging = (isAttributed: boolean): MemoryUpstream =>
    memoryUpstream({
      capabilities: { tools: {}, logging: {} },
      lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
      request: (peer, request) => {
        if (request.method === 'tools/call') {
          // The last one is unknown, so it is sent whatever the level is.
          for (const level of ['debug', 'warning', 'error', 'notice2']) {
            const params = { level, data: request.params?.object('arguments')?.string('nonce') };
            const text = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params });
            peer.send(text, isAttributed ? Number(request.id) : undefined);
          }
        }
        peer.send(result(request, { content: [] }));
      },
    });
  const levels = ({ messages }: ModernRequest) => named(messages, 'notifications/message').map(({ level }) => level);
  const call = (gateway: Parameters<typeof modernRequest>[0], nonce: string, options: object) =>
    modernRequest(gateway, 'tools/call', toolCall('up__t', { nonce }), options);

  for (const isAttributed of [true, false]) {
    const how = isAttributed ? 'if the server relates them' : 'on a connection of its own';
    test(`from the level in its request, or none without one, ${how}`, TIMEOUT, async () => {
      const where = isAttributed ? { target: HTTP } : {};
      await using gateway = await testCore({ up: { memory: logging(isAttributed), ...where } });
      const wants = call(gateway, 'a', { logLevel: 'warning' });
      await wants.reply;
      assert.deepEqual(levels(wants), ['warning', 'error', 'notice2']);
      const quiet = call(gateway, 'b', {});
      await quiet.reply;
      assert.deepEqual(levels(quiet), []);
      const loud = call(gateway, 'c', { logLevel: 'debug' });
      await loud.reply;
      assert.deepEqual(levels(loud), ['debug', 'warning', 'error', 'notice2']);
    });
  }

  test('on the stream of their request only', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: logging(true), target: HTTP } });
    const calls = ['a', 'b', 'c'].map((nonce) => ({ nonce, call: call(gateway, nonce, { logLevel: 'error' }) }));
    for (const { nonce, call: one } of calls) {
      await one.reply;
      assert.deepEqual(
        named(one.messages, 'notifications/message').map(({ data }) => data),
        [nonce, nonce],
      );
    }
  });

  test('never from a shared connection, where the recipient is ambiguous', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: logging(false), isolation: 'shared' } });
    const wants = call(gateway, 'a', { logLevel: 'debug' });
    await wants.reply;
    assert.deepEqual(wants.messages, []);
  });
});

//
test('an update of a resource that a stream names twice has each of its names', TIMEOUT, async () => {
  const memory = older();
  await using gateway = await testCore({ up: { memory } });
  const resourceSubscriptions = ['test://a', URI];
  const listen = modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions } });
  assert.deepEqual(await waitForAcknowledgement(listen), { resourceSubscriptions });
  updates(memory);
  await waitUntil(() => named(listen.messages, UPDATED).length === 2);
  assert.deepEqual(
    named(listen.messages, UPDATED).map(({ uri }) => uri),
    resourceSubscriptions,
  );
  listen.call.close();
});

// N-23
test('limit subscriptionUriBytes: a longer URI is left out of the acknowledgement', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: older() } });
  const long = `up+test://${'x'.repeat(LIMITS.subscriptionUriBytes)}`;
  const stream = modernRequest(gateway, 'subscriptions/listen', {
    notifications: { resourceSubscriptions: [URI, long] },
  });
  assert.deepEqual(await waitForAcknowledgement(stream), { resourceSubscriptions: [URI] });
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="subscriptionUriBytes"\} 1/);
});

test('limit listenEntries: a stream for more URIs is refused', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: older() } });
  const uris = Array.from({ length: LIMITS.listenEntries }, (_, n) => `up+test://${n}`);
  const listen = (resourceSubscriptions: readonly string[]) =>
    modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions } });
  const stream = listen(uris);
  assert.deepEqual(await waitForAcknowledgement(stream), { resourceSubscriptions: uris });
  stream.call.close();
  assert.equal((await listen([...uris, URI]).reply).error?.code, -32_602);
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="listenEntries"\} 1/);
});

// N-23
test('URIs beyond the bytes of a principal are not subscribed, those of others are', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: older() } });
  const resourceSubscriptions = Array.from({ length: 300 }, (_, n) => `up+test://${n}`.padEnd(4_000, 'x'));
  const listen = (key: string) => {
    const principal = { key, label: key, scopes: [] };
    return modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions } }, { principal });
  };
  const countOf = async (request: ModernRequest) => {
    const { resourceSubscriptions: uris = [] } = Object(await waitForAcknowledgement(request));
    return uris.length;
  };
  const first = listen('ann');
  const room = await countOf(first);
  assert.ok(room > 200 && room < 300, `${room} of 300`);
  const empty = listen('ann');
  assert.equal(await countOf(empty), 0);
  assert.equal(await countOf(listen('bob')), room);
  first.call.close();
  await first.reply;
  assert.equal(await countOf(listen('ann')), room);
});

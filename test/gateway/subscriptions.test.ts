import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import type { Message, RpcError } from '../../src/protocol/jsonrpc.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { type TestClient, type TestCore, testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result, type Script } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const FILE = { uri: 'file:///a', name: 'a' };
const URI = 'up+file:///a';

function watched(script: Script = {}): MemoryUpstream {
  return memoryUpstream({
    capabilities: { resources: { subscribe: true }, tools: {}, logging: {} },
    lists: { tools: [ECHO], resources: [FILE] },
    ...script,
  });
}

function updated(peer: Peer | undefined, uri = 'file:///a'): void {
  peer?.send(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"${uri}"}}`);
}

function asked(peer: Peer | undefined, method: string): string[] {
  return (peer?.received ?? []).flatMap((message) =>
    message.kind === 'request' && message.method === method ? [message.params?.toString() ?? ''] : [],
  );
}

/** The conversation in which this was last asked for. */
function lastAsked(memory: MemoryUpstream, method: string): Peer | undefined {
  return memory.peers.findLast((peer) => asked(peer, method).length > 0);
}

function uris(messages: readonly Message[]): (string | undefined)[] {
  return messages.flatMap((message) =>
    message.kind === 'notification' && message.method === 'notifications/resources/updated'
      ? [message.params?.string('uri')]
      : [],
  );
}

// M-016
test('an update has the published URI, and reaches no other session', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory } });
  const [subscriber, other] = [await gateway.connect(), await gateway.connect()];
  await subscriber.result('resources/subscribe', { uri: URI });
  await other.result('tools/call', toolCall('up__echo'));
  for (const peer of memory.open) updated(peer);
  await subscriber.waitForMessage('notifications/resources/updated');
  assert.deepEqual(uris(subscriber.listened), [URI]);
  assert.deepEqual(other.listened, []);
});

for (const isolation of ['session', 'shared'] as const) {
  test(
    `isolation ${isolation}: an update that comes with the answer of its subscription is sent`,
    TIMEOUT,
    async () => {
      const memory = watched({
        request: (peer, request) => {
          peer.send(result(request, {}));
          if (request.method === 'resources/subscribe') updated(peer);
        },
      });
      await using gateway = await testCore({ up: { memory, isolation } });
      const client = await gateway.connect();
      await client.result('resources/subscribe', { uri: URI });
      await client.waitForMessage('notifications/resources/updated');
      assert.deepEqual(uris(client.listened), [URI]);
    },
  );
}

//
test('a shared connection subscribes once, and unsubscribes after the last one', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const [a, b, other] = [await gateway.connect(), await gateway.connect(), await gateway.connect()];
  for (const client of [a, b]) await client.result('resources/subscribe', { uri: URI });
  await other.result('tools/call', toolCall('up__echo'));
  assert.equal(memory.requests('resources/subscribe').length, 1);

  updated(memory.peers[0]);
  await a.waitForMessage('notifications/resources/updated');
  await b.waitForMessage('notifications/resources/updated');
  assert.deepEqual(other.listened, []);

  await a.result('resources/unsubscribe', { uri: URI });
  assert.equal(memory.requests('resources/unsubscribe').length, 0);
  await gateway.core.gateway.endSession(b.session);
  await memory.until(() => memory.requests('resources/unsubscribe')[0]);
  updated(memory.peers[0]);
  await other.result('ping');
  assert.deepEqual(uris(a.listened), [URI]);
});

test('a session that ends while it subscribes on a shared connection leaves none', TIMEOUT, async () => {
  const memory = watched({
    request: (peer, request) => {
      if (request.method !== 'resources/subscribe') peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  const subscribing = client.request('resources/subscribe', { uri: URI });
  const request = await memory.until(() => memory.requests('resources/subscribe')[0]);
  await gateway.core.gateway.endSession(client.session);
  memory.peers[0]?.send(result(request, {}));
  await subscribing;
  await memory.until(() => memory.requests('resources/unsubscribe')[0]);
});

test('a refused subscription is not sent again on the next connection', TIMEOUT, async () => {
  const memory = watched({
    request: (peer, request) => {
      if (request.method !== 'resources/subscribe') return peer.send(result(request, {}));
      peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32002,"message":"no such resource"}}`);
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  for (const n of [1, 2, 3]) {
    const { answer } = await client.request('resources/subscribe', { uri: `up+file:///none/${n}` });
    assert.ok(answer.kind === 'error' && answer.error.code === -32002);
  }
  const [first] = memory.peers;
  first?.crash();
  await client.request('tools/call', toolCall('up__echo'));
  assert.deepEqual(asked(memory.peers.at(-1), 'resources/subscribe'), []);
});

/** An upstream whose processes refuse subscriptions while they load. */
function loading() {
  let isLoading = false;
  const memory = watched({
    request: (peer, request) => {
      if (!isLoading || request.method !== 'resources/subscribe') return peer.send(result(request, {}));
      peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32002,"message":"loading"}}`);
    },
  });
  const crash = () => {
    for (const peer of memory.open) peer.crash();
  };
  return { memory, crash, setLoading: (is: boolean) => void (isLoading = is) };
}

// REL-16
test('a subscription that a new process refuses twice is made at the next one', TIMEOUT, async (t) => {
  const { memory, setLoading, crash } = loading();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('resources/subscribe', { uri: URI });
  const time = stopTime(t);
  const madeTimes = (times: number) =>
    time.passUntil(
      memory.until(() => memory.requests('resources/subscribe').length >= times || undefined),
      100,
    );
  setLoading(true);
  crash();
  await madeTimes(3);
  setLoading(false);
  crash();
  await madeTimes(4);
});

for (const isolation of ['session', 'shared'] as const) {
  // REL-16
  test(`isolation ${isolation}: a lost connection is restored, with its state`, TIMEOUT, async () => {
    const memory = watched();
    await using gateway = await testCore({ up: { memory, isolation } });
    const client = await gateway.connect();
    await client.result('resources/subscribe', { uri: URI });
    await client.result('logging/setLevel', { level: 'warning' });
    const old = lastAsked(memory, 'resources/subscribe');
    const before = memory.peers.length;
    old?.end(new GatewayError('upstream-session-lost', { executed: 'unknown' }));
    const fresh = await memory.until(() =>
      memory.peers.slice(before).find((peer) => asked(peer, 'logging/setLevel').length > 0),
    );
    assert.deepEqual(asked(fresh, 'resources/subscribe'), ['{"uri":"file:///a"}']);
    assert.deepEqual(asked(fresh, 'logging/setLevel'), ['{"level":"warning"}']);
    updated(fresh);
    await client.waitForMessage('notifications/resources/updated');
  });

  // REL-16
  test(`isolation ${isolation}: subscriptions survive an upstream that is down`, TIMEOUT, async () => {
    let downUntil = 0;
    const memory: MemoryUpstream = watched({
      start: () =>
        memory.starts <= downUntil
          ? Promise.reject(new GatewayError('upstream-unavailable', { message: 'down' }))
          : Promise.resolve(),
    });
    await using gateway = await testCore({ up: { memory, isolation } });
    const client = await gateway.connect();
    await client.result('resources/subscribe', { uri: URI });
    downUntil = memory.starts + 1;
    const before = memory.peers.length;
    lastAsked(memory, 'resources/subscribe')?.crash();
    const fresh = await memory.until(() =>
      memory.peers.slice(before).find((peer) => asked(peer, 'resources/subscribe').length > 0),
    );
    updated(fresh);
    await client.waitForMessage('notifications/resources/updated');
  });
}

// REL-16
test('a subscription that a new process refuses ends its stream, and is made once more', TIMEOUT, async (t) => {
  const { memory, setLoading, crash } = loading();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('resources/subscribe', { uri: URI });
  const notifications = { resourceSubscriptions: [URI] };
  const stream = modernRequest(gateway, 'subscriptions/listen', { notifications });
  await memory.until(() => memory.requests('resources/subscribe')[1]);
  await waitUntil(() => stream.messages.length === 1);
  const time = stopTime(t);
  setLoading(true);
  crash();
  assert.equal((await time.passUntil(stream.reply, 10)).error, undefined);
  await time.passUntil(
    memory.until(() => memory.requests('resources/subscribe')[3]),
    10,
  );
  setLoading(false);
  await time.passUntil(client.waitForMessage('notifications/resources/updated'), 1_000);
  assert.equal(memory.requests('resources/subscribe').length, 5);
});

test('two URIs of one resource are two independent subscriptions', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (const uri of [URI, 'file:///a']) await client.result('resources/subscribe', { uri });
  await client.result('resources/unsubscribe', { uri: 'file:///a' });
  assert.equal(memory.requests('resources/unsubscribe').length, 0);
});

test('an update has the URI by which the session has subscribed', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const [own, both, published] = [await gateway.connect(), await gateway.connect(), await gateway.connect()];
  for (const client of [own, both]) await client.result('resources/subscribe', { uri: 'file:///a' });
  for (const client of [both, published]) await client.result('resources/subscribe', { uri: URI });
  updated(memory.peers[0]);
  updated(memory.peers[0], 'file:///a/part');
  for (const client of [own, both, published]) {
    await client.until(() => client.listened.find((message) => uris([message])[0] === `${URI}/part`));
  }
  assert.deepEqual(uris(own.listened), ['file:///a', `${URI}/part`]);
  assert.deepEqual(uris(both.listened), ['file:///a', URI, `${URI}/part`]);
  assert.deepEqual(uris(published.listened), [URI, `${URI}/part`]);
});

test('a subscription at an upstream without resources is refused, and not sent', TIMEOUT, async () => {
  const memory = watched({ capabilities: { tools: {} } });
  await using gateway = await testCore({ up: { memory }, watching: { memory: watched() } });
  const client = await gateway.connect();
  const { answer } = await client.request('resources/subscribe', { uri: URI });
  assert.ok(answer.kind === 'error');
  assert.equal(answer.error.code, -32601);
  assert.equal(memory.requests('resources/subscribe').length, 0);
});

// M-007
test('a subscription to an unknown resource is refused, with the client’s URI', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: watched() } });
  const client = await gateway.connect();
  const { answer } = await client.request('resources/subscribe', { uri: 'nobody+file:///a' });
  assert.ok(answer.kind === 'error');
  assert.equal(answer.error.code, -32002);
  assert.partialDeepStrictEqual(answer.error.data, { uri: 'nobody+file:///a' });
});

test('a connection gets the lowest log level of its sessions', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const [a, b] = [await gateway.connect(), await gateway.connect()];
  for (const client of [a, b]) await client.result('tools/call', toolCall('up__echo'));
  await a.result('logging/setLevel', { level: 'error' });
  await b.result('logging/setLevel', { level: 'debug' });
  await a.result('logging/setLevel', { level: 'critical' });
  const levels = memory.requests('logging/setLevel').map(({ params }) => params?.string('level'));
  // The other session has set no level, so the default level still applies.
  assert.deepEqual(levels, ['info', 'debug', 'debug']);
});

// R3
test('an unanswered logging/setLevel does not delay the client or its calls', TIMEOUT, async () => {
  const hung = watched({
    request: (peer, request) => {
      if (request.method === 'tools/call') peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory: hung }, other: { memory: watched() } });
  const client = await gateway.connect();
  await client.result('tools/call', toolCall('up__echo'));
  await client.result('logging/setLevel', { level: 'error' });
  // Messages that were sent before the answer have arrived by now.
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
  const methods = [...hung.open].flatMap(({ received }) =>
    received.map((message) => 'method' in message && message.method),
  );
  assert.ok(!methods.includes('notifications/cancelled'), 'it was waited for until it timed out');
});

// N-23
test('limit subscriptionUriBytes, subscriptionsPerSession: refused, and not sent', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const other = await gateway.connect();
  const refused = async (uri: string): Promise<RpcError> => {
    const { answer } = await client.request('resources/subscribe', { uri });
    assert.ok(answer.kind === 'error', JSON.stringify(answer));
    return answer.error;
  };
  const long = await refused(`up+file:///${'x'.repeat(4_096)}`);
  assert.equal(long.code, -32602);
  assert.match(long.message, /"uri" is longer than 4096 bytes/);
  for (let i = 0; i < 1_000; i++) await client.result('resources/subscribe', { uri: `up+file:///${i}` });
  const over = await refused('up+file:///over');
  assert.partialDeepStrictEqual(over, {
    code: -31013,
    data: { code: 'overloaded', executed: 'no', retryable: true, limit: 'subscriptionsPerSession' },
  });
  assert.match(over.message, /this session has 1000 subscriptions already; unsubscribe from some first/);
  assert.equal(memory.requests('resources/subscribe').length, 1_000);
  assert.match(await gateway.metrics.text(), /linkspan_limit_reached_total\{limit="subscriptionsPerSession"\} 1\n/);
  await other.result('resources/subscribe', { uri: 'up+file:///over' });
  await client.result('resources/unsubscribe', { uri: 'up+file:///7' });
  await client.result('resources/subscribe', { uri: 'up+file:///over' });
});

// N-23
test('a subscription that the upstream refuses is not stored', TIMEOUT, async () => {
  const memory = watched({
    request: (peer, request) => {
      const isRefused = request.method === 'resources/subscribe' && request.params?.string('uri') === 'file:///no';
      if (isRefused) peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32002,"message":"No"}}`);
      else peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const { session } = await subscribeTo(gateway, ['up+file:///no', URI]);
  await gateway.restart();
  const first = memory.requests('resources/subscribe').length;
  const woken = await gateway.core.gateway.findSession(session.id, LOCAL, '');
  assert.ok(woken);
  await memory.until(() => memory.requests('resources/subscribe')[first]);
  assert.deepEqual(
    memory
      .requests('resources/subscribe')
      .slice(first)
      .map(({ params }) => params?.string('uri')),
    ['file:///a'],
  );
});

async function subscribeTo(gateway: TestCore, all: readonly string[]): Promise<TestClient> {
  const client = await gateway.connect();
  for (const uri of all) await client.request('resources/subscribe', { uri });
  return client;
}

// N-29
test('many updates of one resource reach each client as one now and one later', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const clients = [await gateway.connect(), await gateway.connect()];
  for (const client of clients) await client.result('resources/subscribe', { uri: URI });
  for (let n = 0; n < 1_000; n++) updated(memory.peers[0]);
  for (const client of clients) assert.deepEqual(uris(client.listened), [URI]);
  for (const client of clients) await client.until(() => uris(client.listened)[1]);
  for (const client of clients) assert.deepEqual(uris(client.listened), [URI, URI]);
});

// N-29
test('updates of different resources all arrive', TIMEOUT, async () => {
  const memory = watched();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect();
  await client.result('resources/subscribe', { uri: URI });
  const parts = Array.from({ length: 50 }, (_, n) => `file:///a/${n}`);
  for (const part of parts) updated(memory.peers[0], part);
  assert.deepEqual(
    uris(client.listened),
    parts.map((part) => `up+${part}`),
  );
});

// N-48
test('several list_changed are announced once, also if the list turns out equal', TIMEOUT, async () => {
  for (const isolation of ['session', 'shared'] as const) {
    const memory = watched({ capabilities: { tools: { listChanged: true }, resources: { subscribe: true } } });
    await using gateway = await testCore({ up: { memory, isolation } });
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo'));
    for (const peer of memory.open) {
      for (let n = 0; n < 5; n++) peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    }
    await client.waitForMessage('notifications/tools/list_changed');
    const methods = client.listened.map((message) => ('method' in message ? message.method : undefined));
    assert.deepEqual(methods, ['notifications/tools/list_changed'], isolation);
  }
});

// N-05
test('list_changed during a start is not announced if the lists are equal', TIMEOUT, async () => {
  const memory = watched({
    capabilities: { tools: { listChanged: true } },
    notification: (peer, { method }) => {
      if (method === 'notifications/initialized')
        peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'session' } });
  const [first, client] = [await gateway.connect(), await gateway.connect()];
  await first.result('tools/call', toolCall('up__echo'));
  await client.result('tools/call', toolCall('up__echo'));
  // The last process was listed again after its report, and the lists are equal.
  await memory.until(() => asked(memory.peers.at(-1), 'tools/list')[0]);
  for (const peer of memory.open) peer.send('{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}');
  await client.waitForMessage('notifications/prompts/list_changed');
  const methods = client.listened.map((message) => ('method' in message ? message.method : undefined));
  assert.deepEqual(methods, ['notifications/prompts/list_changed']);
});

test('a change of lists in one session makes the next client’s lists be fetched again', TIMEOUT, async () => {
  // The server keeps its list outside of the process.
  let tools = [ECHO];
  const memory = watched({
    capabilities: { tools: { listChanged: true } },
    listsOf: () => ({ tools }),
    request: (peer, request) => {
      tools = [ECHO, { ...ECHO, name: 'more' }];
      peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
      peer.send(result(request, { content: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'session' } });
  const first = await gateway.connect();
  await first.result('tools/list');
  await first.result('tools/call', toolCall('up__echo'));
  await first.waitForMessage('notifications/tools/list_changed');
  const next = await gateway.connect();
  const count = async () => {
    const { tools: listed } = await next.result('tools/list');
    return Array.isArray(listed) ? listed.length : 0;
  };
  if ((await count()) === 1) await next.waitForMessage('notifications/tools/list_changed');
  assert.equal(await count(), 2);
});

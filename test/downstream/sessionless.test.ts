import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { event } from '../fixtures/servers/http-harness.ts';
import {
  type HttpUpstream,
  legacyUpstream,
  modernUpstream,
  resultText,
  type Served,
} from '../support/http-upstream.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { modernEvents, modernPost } from '../support/modern-wire.ts';
import { connectSdk1, connectSdk2 } from '../support/sdk-client.ts';
import { waitUntil } from '../support/wait-until.ts';
import { type Got, initialize, messagesOf, post, postForEvents, rpc, send } from './client.ts';

const TIMEOUT = { timeout: 120_000 };
const COUNT = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/count-stdio.ts')] };
const TOOLS = ['quick', 'counts', 'waits'].map((name) => ({ name, inputSchema: { type: 'object' } }));
const DONE = { content: [{ type: 'text', text: 'done' }] };

/** Returns the handler of tool calls: `counts` reports progress first, and `waits` does no more than that. */
function act(result: Readonly<Record<string, unknown>>) {
  return (served: Served) => {
    const { params, meta } = served;
    const tool = params['name'];
    if (tool === 'quick') return result;
    served.notify('notifications/progress', { progressToken: meta['progressToken'], progress: 1 });
    if (tool === 'counts') served.response.end(event(resultText(served.id, result)));
    return undefined;
  };
}

let modern: HttpUpstream;
let legacy: HttpUpstream;
let gateway: OpenGateway;
let url = '';

before(async () => {
  const resources = [{ uri: 'file:///a', name: 'a' }];
  modern = await modernUpstream({
    tools: TOOLS,
    answers: { 'tools/call': act({ resultType: 'complete', ...DONE }) },
  });
  legacy = await legacyUpstream({
    tools: TOOLS,
    resources,
    answers: { 'tools/call': act(DONE), 'resources/subscribe': () => ({}) },
  });
  gateway = await openGateway(
    { new: { url: modern.url }, old: { url: legacy.url, era: 'legacy' }, count: COUNT },
    { sessions: { required: false } },
  );
  url = gateway.url;
});

after(async () => {
  await gateway[Symbol.asyncDispose]();
  await modern[Symbol.asyncDispose]();
  await legacy[Symbol.asyncDispose]();
});

const JUNE = { 'mcp-protocol-version': '2025-06-18' };

/** Sends a request without a session id. */
function ask(method: string, params: object = {}, headers: Readonly<Record<string, string>> = JUNE): Promise<Got> {
  return post(url, rpc(1, method, params), undefined, headers);
}

function call(name: string, progressToken?: string) {
  return { name, arguments: {}, ...(progressToken === undefined ? {} : { _meta: { progressToken } }) };
}

function resultOf(got: Got): unknown {
  assert.equal(got.status, 200, got.text);
  const { id, result } = messagesOf(got).at(-1) ?? {};
  assert.equal(id, 1, got.text);
  return result;
}

test('a client that never sends its session id initializes, lists and calls', TIMEOUT, async () => {
  assert.ok(await initialize(url, '2025-06-18'), 'other clients still get a session');
  const noted = await post(url, '{"jsonrpc":"2.0","method":"notifications/initialized"}', undefined, JUNE);
  assert.equal(noted.status, 202);
  const listed = JSON.stringify(resultOf(await ask('tools/list')));
  for (const name of ['new__quick', 'old__quick', 'count__add']) assert.ok(listed.includes(`"${name}"`), listed);
  assert.ok(!listed.includes('"resultType"'), 'the answer is one of the legacy era');
  for (const name of ['new__quick', 'old__quick'])
    assert.deepEqual(resultOf(await ask('tools/call', call(name))), DONE);
});

for (const [version, connect] of [
  ['1', connectSdk1],
  ['2', (at: string) => connectSdk2(at, { mode: 'legacy' })],
] as const) {
  test(`SDK client ${version} works behind a proxy that drops its session id`, TIMEOUT, async () => {
    const { hostname, port } = new URL(url);
    const proxy = createServer((incoming, outgoing) => {
      const { 'mcp-session-id': _, ...headers } = incoming.headers;
      const { method, url: path } = incoming;
      const onward = request({ hostname, port, path, method, headers }, (response) => {
        outgoing.writeHead(response.statusCode ?? 0, response.headers);
        response.pipe(outgoing);
      });
      incoming.pipe(onward);
    }).listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const address = proxy.address();
    assert.ok(typeof address === 'object' && address !== null);
    try {
      await using sdk = await connect(`http://127.0.0.1:${address.port}/mcp`);
      const { tools } = await sdk.client.listTools();
      assert.ok(tools.some(({ name }) => name === 'old__quick'));
      const { content } = await sdk.client.callTool({ name: 'old__quick', arguments: {} });
      assert.deepEqual(content, DONE.content);
      await sdk.client.setLoggingLevel('info');
    } finally {
      proxy.close();
      proxy.closeAllConnections();
    }
  });
}

test('requests of one id at the same time have answers of their own', TIMEOUT, async () => {
  const names = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? 'new__quick' : 'old__counts'));
  const got = await Promise.all(names.map((name, n) => ask('tools/call', call(name, `mine ${n}`))));
  for (const one of got) assert.deepEqual(resultOf(one), DONE);
  assert.deepEqual(
    got.map((one) => (one.text.includes('progressToken') ? /mine \d+/.exec(one.text)?.[0] : undefined)),
    names.map((name, n) => (name === 'old__counts' ? `mine ${n}` : undefined)),
  );
});

for (const name of ['new__waits', 'old__waits']) {
  test(`a disconnect cancels a call without a session: ${name}`, TIMEOUT, async () => {
    const upstream = name === 'new__waits' ? modern : legacy;
    const events = await postForEvents(url, rpc(1, 'tools/call', call(name, 'x')), undefined, JUNE);
    await events.until(({ messages }) => messages.length > 0);
    const waiting = upstream.requests('tools/call').filter(({ params }) => params['name'] === 'waits');
    assert.equal(waiting.length, 1);
    events.close();
    if (upstream === modern) await waiting[0]?.closed;
    else await waitUntil(() => upstream.requests('notifications/cancelled').length > 0);
  });
}

test('requests of one principal without a session share its state at a stdio server', TIMEOUT, async () => {
  const added = async (headers: Readonly<Record<string, string>>) =>
    JSON.stringify(resultOf(await ask('tools/call', call('count__add'), headers)));
  const first = await added(JUNE);
  assert.match(first, /1 of (\d+)/);
  // Machines of one cloud may send the revision or not.
  for (const [n, version] of ['2025-11-25', '2025-03-26', '2024-11-05'].entries()) {
    assert.equal(await added({ 'mcp-protocol-version': version }), first.replace('1 of', `${n + 2} of`));
  }
  assert.equal(await added({}), first.replace('1 of', '5 of'));
});

test('a request without a session subscribes to nothing for a client that listens', TIMEOUT, async () => {
  const inner = await openGateway({ old: { url: legacy.url } }, { accessLog: 'all' });
  const outer = await openGateway({ inner: { url: inner.url } }, { sessions: { required: false } });
  await using _stack = new AsyncDisposableStack();
  _stack.use(inner);
  _stack.use(outer);
  const listed = JSON.stringify((await modernPost(outer.url, 'resources/list')).text);
  const uri = /"uri\\":\\"([^"\\]+)/.exec(listed)?.[1] ?? '';
  const notifications = { resourceSubscriptions: [uri] };
  const stream = await modernEvents(outer.url, 'subscriptions/listen', { notifications });
  await stream.until(({ messages }) => messages.length > 0);
  assert.ok(JSON.stringify(stream.messages[0]).includes(uri), JSON.stringify([uri, stream.messages]));
  const got = await post(outer.url, rpc(1, 'tools/call', call('inner__old__quick')), undefined, JUNE);
  assert.deepEqual(resultOf(got), DONE);
  await waitUntil(() => inner.lines.some((line) => line.includes('"tools/call"')));
  assert.ok(!inner.lines.some((line) => line.includes('"resources/subscribe"')), inner.lines.join(''));
  stream.close();
});

// T-032
test('the revision is that of the header, and 2025-03-26 without one', TIMEOUT, async () => {
  const uses = async (headers: Readonly<Record<string, string>>) => {
    await using own = await modernUpstream({
      tools: [{ name: 'quick', inputSchema: { type: 'object' }, outputSchema: { type: 'object' } }],
    });
    await using at = await openGateway({ s: { url: own.url } }, { sessions: { required: false } });
    const got = await post(at.url, rpc(1, 'tools/list'), undefined, headers);
    return got.text.includes('"outputSchema"');
  };
  assert.equal(await uses({}), false);
  assert.equal(await uses({ 'mcp-protocol-version': '2025-03-26' }), false);
  assert.equal(await uses(JUNE), true);
  assert.equal(await uses({ 'mcp-protocol-version': '2025-11-25' }), true);
  const unknown = await ask('tools/list', {}, { 'mcp-protocol-version': '2020-01-01' });
  assert.equal(unknown.status, 400);
});

test('what needs a session says so, and an unknown method is no lost session', TIMEOUT, async () => {
  assert.deepEqual(resultOf(await ask('ping')), {});
  assert.deepEqual(resultOf(await ask('logging/setLevel', { level: 'info' })), {});
  for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
    const got = await ask(method, { uri: 'file:///a' });
    assert.equal(got.status, 200);
    assert.match(got.text, /Mcp-Session-Id.*resources\/(?:un)?subscribe/);
  }
  for (const method of ['server/discover', 'subscriptions/listen', 'tasks/list', 'nothing/such']) {
    const got = await ask(method);
    assert.equal(got.status, 200, got.text);
    assert.match(got.text, /"code":-32601/);
  }
  const batch = await post(url, `[${rpc(1, 'ping')}]`, undefined, {});
  assert.equal(batch.status, 400);
  const answer = await post(url, '{"jsonrpc":"2.0","id":1,"result":{}}', undefined, JUNE);
  assert.equal(answer.status, 202);
  assert.equal((await send(url, { method: 'GET', headers: { accept: 'text/event-stream' } })).status, 405);
});

// T-031
test('an ended session is unknown also where none is required', TIMEOUT, async () => {
  const got = await post(url, rpc(1, 'ping'), 'nobody', JUNE);
  assert.equal(got.status, 404);
});

test('members of a retry mean nothing in the legacy era', TIMEOUT, async () => {
  const params = { ...call('new__quick'), requestState: 'x', inputResponses: { a: {} } };
  assert.deepEqual(resultOf(await ask('tools/call', params)), DONE);
});

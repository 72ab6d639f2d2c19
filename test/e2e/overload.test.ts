import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Got, initialize, post, rpc, send } from '../downstream/client.ts';
import { stream } from '../fixtures/servers/http-harness.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { modernUpstream, type Served } from '../support/http-upstream.ts';
import { modernHeaders, modernPost, modernText } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const TOOLS = ['echo', 'waits', 'large'].map((name) => ({ name, inputSchema: { type: 'object' } }));
const LARGE_CHARS = 12_000_000;
/** More than a busy machine delays three of five turns. */
const LATE_MS = 500; // subject
const PAUSE_MS = 60;

const INITIALIZE = rpc(0, 'initialize', {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'test', version: '1' },
});

/** A gateway before an upstream whose tool `waits` is answered by `release`. */
async function openSession(gateway: GatewayFile['gateway']) {
  const held: Served[] = [];
  const text = (chars: number) => ({ resultType: 'complete', content: [{ type: 'text', text: 'x'.repeat(chars) }] });
  const upstream = await modernUpstream({
    tools: TOOLS,
    answers: {
      'tools/call': (served) => {
        if (served.params['name'] !== 'waits') return text(served.params['name'] === 'large' ? LARGE_CHARS : 1);
        held.push(served);
        stream(served.response);
        return undefined;
      },
    },
  });
  const running = await startGateway({
    mcpServers: { up: { url: upstream.url, concurrency: 1_000 } },
    gateway: { ...gateway, limits: { inFlightPerSession: 1_000 } },
  });
  const url = running.endpoint();
  const waiting: Promise<Got>[] = [];
  return {
    url,
    running,
    upstream,
    call: (name = 'up__echo') => modernPost(url, 'tools/call', { name, arguments: {} }),
    /** Makes calls that wait at the upstream. */
    wait: async (count: number) => {
      for (let n = 0; n < count; n++) waiting.push(modernPost(url, 'tools/call', { name: 'up__waits', arguments: {} }));
      await waitUntil(() => held.length >= count);
    },
    release: async () => {
      for (const served of held.splice(0)) served.result(text(1));
      return await Promise.all(waiting.splice(0));
    },
    metrics: async () => (await send(`${running.operatorUrl}/metrics`, { method: 'GET' })).text,
    [Symbol.asyncDispose]: async () => {
      for (const served of held) served.response.destroy();
      await Promise.allSettled(waiting);
      await running.stop();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

/** Makes a call with a large answer. Returns its connection, from which nothing is read. */
async function openUnread(url: string): Promise<Socket> {
  const { hostname, port, pathname, host } = new URL(url);
  const params = { name: 'up__large', arguments: {} };
  const body = modernText('tools/call', params);
  const headers = {
    host,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'content-length': String(Buffer.byteLength(body)),
    ...modernHeaders('tools/call', params),
  };
  const socket = connect(Number(port), hostname);
  socket.pause();
  await once(socket, 'connect');
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`POST ${pathname} HTTP/1.1\r\n${lines.join('')}\r\n${body}`);
  return socket;
}

/** Stops the process again and again, so that each turn of its event loop is late. */
function slowed(gateway: RunningGateway): AsyncDisposable {
  const end = new AbortController();
  const slowing = (async () => {
    while (!end.signal.aborted) {
      gateway.pause();
      await sleep(2 * LATE_MS);
      gateway.resume();
      await sleep(PAUSE_MS);
    }
  })();
  return {
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await slowing;
    },
  };
}

/** Sends something until it is refused, since only a share may be. */
async function assertRefused(sendOnce: () => Promise<Got>, reason: string): Promise<void> {
  let got = await sendOnce();
  await waitUntil(async () => {
    if (got.status !== 503) got = await sendOnce();
    return got.status === 503;
  });
  const { headers, text } = got;
  assert.match(String(headers['retry-after']), /^[1-9]$/);
  assert.match(text, /"code":"overloaded","executed":"no","retryable":true,"retryAfterMs":\d+/);
  assert.match(text, RegExp(`"reason":"${reason}"`));
  assert.match(text, /has not begun this one\. Nothing was sent\. Wait \d s or more/);
}

// R19 REL-33
test('a late loop refuses new calls and sessions; everything else goes on', OPTIONS, async () => {
  await using at = await openSession({ overload: { loopDelay: `${LATE_MS}ms` } });
  const { url, running } = at;
  const [session, other] = [await initialize(url), await initialize(url)];
  assert.equal((await at.call()).status, 200);
  await at.wait(120);
  {
    await using _slowed = slowed(running);
    await assertRefused(() => at.call(), 'loop-delay');
    const call = rpc(1, 'tools/call', { name: 'up__echo', arguments: {} });
    await assertRefused(() => post(url, call, session), 'loop-delay');
    await assertRefused(() => post(url, INITIALIZE), 'loop-delay');
    assert.equal((await post(url, rpc(2, 'ping'), session)).status, 200);
    assert.match((await post(url, rpc(3, 'tools/list'), session)).text, /up__echo/);
    assert.equal((await send(url, { method: 'DELETE', headers: { 'mcp-session-id': other } })).status, 204);
    const ready = await send(`${running.operatorUrl}/readyz`, { method: 'GET' });
    assert.equal(ready.status, 200);
    assert.match(
      ready.text,
      /refuses new requests while 100 or more are in flight: the gateway has more requests than it can serve in time/,
    );
  }
  for (const { status, text } of await at.release()) assert.equal(status, 200, text);
  await waitUntil(async () => (await at.call()).status === 200);
  assert.match(await at.metrics(), /^linkspan_shed_total\{reason="loop-delay"\} [1-9]/m);
});

// R20
test('without memory new work is refused while other work is in flight', OPTIONS, async () => {
  // Less than the program itself needs.
  await using at = await openSession({ overload: { memory: '64MiB' } });
  const { url } = at;
  await waitUntil(async () => /^linkspan_memory_used_ratio (?:[1-9]|0\.9)/m.test(await at.metrics()));
  assert.equal((await at.call()).status, 200, 'with nothing in flight');
  await at.wait(15);
  // The calls in flight are counted without this one.
  assert.equal((await at.call()).status, 200);
  await at.wait(1);
  await assertRefused(() => at.call(), 'memory');
  await assertRefused(() => post(url, INITIALIZE), 'memory');
  await assertRefused(() => modernPost(url, 'subscriptions/listen', { filter: {} }), 'memory');
  for (const { status } of await at.release()) assert.equal(status, 200);
  assert.equal((await at.call()).status, 200);
});

// R20
test('without memory the connections of readers that do not read are closed', OPTIONS, async () => {
  await using at = await openSession({ overload: { memory: '64MiB' } });
  const unread = await openUnread(at.url);
  await waitUntil(async () => /^linkspan_budget_exceeded_total\{kind="unsent"\} [1-9]/m.test(await at.metrics()));
  unread.resume();
  // The connection ends before the whole answer has arrived.
  unread.on('error', () => undefined);
  if (!unread.destroyed) await once(unread, 'close');
});

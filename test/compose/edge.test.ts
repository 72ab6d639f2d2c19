import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { connect, createServer } from 'node:net';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { test } from 'node:test';
import { queryObjects } from 'node:v8';
import type { HttpBindings } from '@hono/node-server';
import { Hono } from 'hono';
import { pino } from 'pino';
import { Agent } from 'undici';
import { VerifiedTokens } from '../../src/auth/verified-tokens.ts';
import { Edge } from '../../src/compose/edge.ts';
import type { Address, Config } from '../../src/config/values/config.ts';
import { StartError } from '../../src/errors.ts';
import { createOperatorApp } from '../../src/operator/app.ts';
import { ADMIN_PATH } from '../../src/operator/admin/routes.ts';
import { signingKey, TestIssuer } from '../auth/issuer.ts';
import {
  BOTH,
  type Events,
  getEvents,
  initialize,
  post,
  postForEvents,
  responseTo,
  rpc,
} from '../downstream/client.ts';
import { testCore } from '../support/core.ts';
import { freePort } from '../support/free-port.ts';
import { modernText } from '../support/modern-wire.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const LOOPBACK: Address = { host: '127.0.0.1', port: 0 };
const STATE = {
  file: '/config.yaml',
  hash: '0123456789ab',
  loadedAt: '2026-11-20T00:00:00.000Z',
  lastGoodAt: undefined,
  rejected: undefined,
  atRestart: [],
  warnings: [],
};

/** A core with the functions to open an edge in front of it. */
async function testEdge(memory = memoryUpstream({})) {
  const gateway = await testCore({ up: { memory } });
  const asked = Promise.withResolvers<void>();
  const operatorView = {
    metrics: gateway.metrics,
    version: '0',
    startedAtMs: 0,
    isLocal: true,
    admin: new Hono<{ Bindings: Partial<HttpBindings>; Variables: { operator: string } }>().get('/hang', () => {
      asked.resolve();
      return new Promise<Response>(() => undefined);
    }),
    onRefused: () => undefined,
    ready: () => ({ ready: true, reasons: [] }),
    upstreams: async () => [],
    config: () => STATE,
  };
  const parts = {
    core: gateway.core,
    metrics: gateway.metrics,
    log: pino({ level: 'silent' }),
    operatorHandlerOf: ({ allowedHosts }: Config) => ({ app: createOperatorApp({ ...operatorView, allowedHosts }) }),
  };
  const configWith = (changes: Partial<Config>): Config => ({ ...gateway.config, operator: LOOPBACK, ...changes });
  const edges = new Set<Edge>();
  return {
    configWith,
    metrics: () => gateway.metrics.text(),
    open: async (changes: Partial<Config> = {}) => {
      const edge = await Edge.open(configWith(changes), parts);
      edges.add(edge);
      return edge;
    },
    /** Sends requests to both listeners that are in flight until the listeners close. Resolves when they have arrived. */
    hold: async ({ origin, operatorOrigin }: Edge) => {
      const socket = connect(Number(new URL(origin).port), '127.0.0.1');
      const closed = new Promise<void>((resolve) => void socket.on('close', () => resolve()));
      socket.on('error', () => undefined).resume();
      await once(socket, 'connect');
      const head = ['POST /mcp HTTP/1.1', 'Host: 127.0.0.1', `Accept: ${BOTH}`, 'Content-Type: application/json'];
      socket.write([...head, 'Content-Length: 10', '', '{"id"'].join('\r\n'));
      await waitUntil(async () => /held_bytes\{kind="bodies"\} [1-9]/.test(await gateway.metrics.text()));
      const failed = assert.rejects(fetch(`${operatorOrigin}${ADMIN_PATH}/hang`));
      await asked.promise;
      return { closed, failed };
    },
    [Symbol.asyncDispose]: async () => {
      for (const edge of edges) await edge.close();
      await gateway[Symbol.asyncDispose]();
    },
  };
}

async function takenPort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  return { port: address.port, close: () => server.close() };
}

/** Returns the status of a response, or `refused` if nobody listens. */
async function statusOf(url: string): Promise<number | 'refused'> {
  try {
    const response = await fetch(url);
    await response.text();
    return response.status;
  } catch {
    return 'refused';
  }
}

const readyz = (origin: string | undefined) => statusOf(`${origin}/readyz`);

const keysOf = (...names: string[]) => ({
  jwt: [],
  apiKeys: names.map((name) => ({ name, sha256: createHash('sha256').update(name).digest('hex') })),
});
const bearer = (name: string) => ({ authorization: `Bearer ${name}` });

async function freeAddress(): Promise<Address> {
  return { host: '127.0.0.1', port: await freePort() };
}

const originOf = ({ host, port }: Address) => `http://${host}:${port}`;

test('an edge whose operator port is in use leaves no listener open', TIMEOUT, async () => {
  await using tested = await testEdge();
  const listen = await freeAddress();
  const taken = await takenPort();
  try {
    const operator = { host: '127.0.0.1', port: taken.port };
    await assert.rejects(tested.open({ listen, operator }), StartError);
    assert.equal(await statusOf(`${originOf(listen)}/mcp`), 'refused');
    // A port that was not configured may be another one.
    const edge = await tested.open({ listen, operator, operatorMayMove: true });
    assert.equal(await readyz(edge.operatorOrigin), 200);
    await edge.close();
  } finally {
    taken.close();
  }
});

test('an operator port that has moved stays, is kept by its number, and moves back', TIMEOUT, async () => {
  await using tested = await testEdge();
  const taken = await takenPort();
  const operator = { host: '127.0.0.1', port: taken.port };
  const edge = await tested.open({ operator, operatorMayMove: true });
  const moved = Number(new URL(edge.operatorOrigin ?? '').port);
  const apply = async (change: object) => (await edge.prepare(tested.configWith(change))).apply();
  try {
    await apply({ operator, operatorMayMove: true });
    assert.equal(edge.operatorOrigin, `http://127.0.0.1:${moved}`);
    await apply({ operator: { ...operator, port: moved }, operatorMayMove: false });
    assert.equal(edge.operatorOrigin, `http://127.0.0.1:${moved}`);
    taken.close();
    await apply({ operator, operatorMayMove: false });
    assert.equal(edge.operatorOrigin, originOf(operator));
    assert.deepEqual([await readyz(originOf(operator)), await readyz(`http://127.0.0.1:${moved}`)], [200, 'refused']);
  } finally {
    taken.close();
    await edge.close();
  }
});

test('another host at a port in use is refused in words, for both listeners', TIMEOUT, async () => {
  await using tested = await testEdge();
  const [listen, operator] = [await freeAddress(), await freeAddress()];
  const edge = await tested.open({ listen, operator });
  try {
    const other = '127.0.0.2';
    for (const [key, { port }, change] of [
      ['gateway.listen', listen, { listen: { ...listen, host: other }, operator }],
      ['gateway.operator', operator, { listen, operator: { ...operator, host: other } }],
    ] as const) {
      const message = `${key}: another host or protocol at the same port (${port}) needs a restart, or another port`;
      await assert.rejects(edge.prepare(tested.configWith(change)), { message });
    }
    const tls = { cert: 'not looked at', key: 'not looked at' };
    await assert.rejects(edge.prepare(tested.configWith({ listen, operator, tls })), /gateway\.listen: .* or protocol/);
    assert.deepEqual([edge.origin, edge.operatorOrigin], [originOf(listen), originOf(operator)]);
  } finally {
    await edge.close();
  }
});

test('a config whose second address is in use leaves the first one closed', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  const listen = await freeAddress();
  const taken = await takenPort();
  try {
    const next = tested.configWith({ listen, operator: { host: '127.0.0.1', port: taken.port } });
    await assert.rejects(edge.prepare(next), StartError);
    assert.equal(await statusOf(`${originOf(listen)}/mcp`), 'refused');
    assert.equal(await readyz(edge.operatorOrigin), 200);
  } finally {
    taken.close();
    await edge.close();
  }
});

test('a config that is abandoned leaves none of its addresses open', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  const [listen, operator] = [await freeAddress(), await freeAddress()];
  try {
    const change = await edge.prepare(tested.configWith({ listen, operator }));
    assert.equal(await readyz(originOf(operator)), 200);
    await change.abandon();
    assert.deepEqual(
      [await statusOf(`${originOf(listen)}/mcp`), await readyz(originOf(operator))],
      ['refused', 'refused'],
    );
    assert.equal(await readyz(edge.operatorOrigin), 200);
    assert.notEqual(await statusOf(`${edge.origin}/mcp`), 'refused');
  } finally {
    await edge.close();
  }
});

test('an edge that closes during a drain closes the addresses that it left', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  const before = { clients: edge.origin, operator: edge.operatorOrigin };
  const held = await tested.hold(edge);
  const reload = { watch: false, drainMs: 3_600_000 };
  const [listen, operator] = [await freeAddress(), await freeAddress()];
  const change = await edge.prepare(tested.configWith({ listen, operator, reload }));
  const moved = change.apply();
  assert.deepEqual([edge.origin, edge.operatorOrigin], [originOf(listen), originOf(operator)]);
  await waitUntil(async () => (await statusOf(`${before.clients}/mcp`)) === 'refused');
  await waitUntil(async () => (await readyz(before.operator)) === 'refused');
  assert.equal(await readyz(originOf(operator)), 200);
  await edge.close();
  await Promise.all([held.closed, held.failed, moved]);
  assert.equal(await readyz(originOf(operator)), 'refused');
});

test('the drain of a replaced address ends after the time of the new config', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ reload: { watch: false, drainMs: 3_600_000 } });
  const held = await tested.hold(edge);
  const next = { listen: await freeAddress(), operator: await freeAddress(), reload: { watch: false, drainMs: 10 } };
  await (await edge.prepare(tested.configWith(next))).apply();
  await Promise.all([held.closed, held.failed]);
  await edge.close();
});

test('both listeners accept the hosts of another config at once', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  const agent = new Agent();
  const named = async (origin: string | undefined, path: string) => {
    const headers = { host: 'gateway.internal' };
    const { statusCode, body } = await agent.request({ origin: origin ?? '', path, method: 'GET', headers });
    await body.text();
    return statusCode;
  };
  const both = async () => [await named(edge.origin, '/mcp'), await named(edge.operatorOrigin, '/readyz')];
  try {
    assert.deepEqual(await both(), [403, 403]);
    await (await edge.prepare(tested.configWith({ allowedHosts: ['gateway.internal'] }))).apply();
    const [clients, operator] = await both();
    assert.notEqual(clients, 403);
    assert.equal(operator, 200);
    await (await edge.prepare(tested.configWith({}))).apply();
    assert.deepEqual(await both(), [403, 403]);
  } finally {
    await agent.destroy();
    await edge.close();
  }
});

test('a config with other keys refuses the old ones; equal keys stay', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann') });
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const asked = async (name: string) => {
    return (await post(`${edge.origin}/mcp`, rpc(1, 'initialize', params), undefined, bearer(name))).status;
  };
  try {
    assert.deepEqual([await asked('ann'), await asked('bob')], [200, 401]);
    await (await edge.prepare(tested.configWith({ auth: keysOf('ann') }))).apply();
    assert.deepEqual([await asked('ann'), await asked('bob')], [200, 401]);
    await (await edge.prepare(tested.configWith({ auth: keysOf('bob') }))).apply();
    assert.deepEqual([await asked('ann'), await asked('bob')], [401, 200]);
    await (await edge.prepare(tested.configWith({ auth: keysOf('bob') }))).apply();
    assert.deepEqual([await asked('ann'), await asked('bob')], [401, 200]);
    // Compared with the config that runs, not with the first one.
    await (await edge.prepare(tested.configWith({ auth: keysOf('ann') }))).apply();
    assert.deepEqual([await asked('ann'), await asked('bob')], [200, 401]);
  } finally {
    await edge.close();
  }
});

function ruleOf({ issuer, jwksUrl }: TestIssuer) {
  return { issuer, jwksUrl, audiences: ['gateway'], algorithms: ['RS256'], requiredScopes: [] };
}

// R18
test('a key that is added while an issuer is down costs its clients nothing', TIMEOUT, async () => {
  await using issuer = await TestIssuer.start(await signingKey('RS256', 'k1'));
  await using tested = await testEdge();
  const rule = ruleOf(issuer);
  const edge = await tested.open({ auth: { ...keysOf('ann'), jwt: [rule] } });
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const asked = async (token: string) =>
    (await post(`${edge.origin}/mcp`, rpc(1, 'initialize', params), undefined, bearer(token))).status;
  const apply = async (auth: Config['auth']) => (await edge.prepare(tested.configWith({ auth }))).apply();
  try {
    const [first, second] = [
      await issuer.token({ aud: 'gateway' }),
      await issuer.token({ aud: 'gateway', sub: 'bob' }),
    ];
    assert.equal(await asked(first), 200);
    await issuer.stop();
    await apply({ ...keysOf('ann', 'bob'), jwt: [{ ...rule }] });
    assert.deepEqual([await asked(first), await asked(second), await asked('bob')], [200, 200, 200]);
    // Other rules hold at once.
    await apply({ ...keysOf('ann', 'bob'), jwt: [{ ...rule, audiences: ['another'] }] });
    assert.deepEqual([await asked(first), await asked(second)], [401, 401], 'judged by the new rules');
    await apply(keysOf('ann'));
    assert.deepEqual([await asked(first), await asked('bob'), await asked('ann')], [401, 401, 200]);
  } finally {
    await edge.close();
  }
});

// R18
test('a token of a new key waits out a fetch for a made-up one, and is not refused', TIMEOUT, async () => {
  await using issuer = await TestIssuer.start(await signingKey('RS256', 'k1'));
  const rotated = await signingKey('RS256', 'k2');
  await using tested = await testEdge();
  const rule = ruleOf(issuer);
  const edge = await tested.open({ auth: { jwt: [rule], apiKeys: [] } });
  const asked = async (token: string) => {
    const { status, headers } = await post(`${edge.origin}/mcp`, rpc(1, 'ping'), undefined, bearer(token));
    return [status, headers['retry-after'], headers['www-authenticate'] !== undefined];
  };
  try {
    assert.equal((await asked(await issuer.token({ aud: 'gateway' })))[0], 400, 'without a session');
    assert.deepEqual(await asked(await issuer.token({}, { kid: 'made-up' })), [401, undefined, true]);
    issuer.keys = [rotated.jwk];
    const token = await issuer.token({ aud: 'gateway' }, {}, rotated);
    assert.deepEqual(await asked(token), [503, '5', false]);
    assert.equal(issuer.fetches, 2);
  } finally {
    await edge.close();
  }
});

test('reloads that change the keys keep no tokens of earlier configs', TIMEOUT, async () => {
  await using tested = await testEdge();
  const rule = { issuer: 'https://issuer.example', jwksUrl: 'https://issuer.example/jwks', audiences: [] };
  const jwt = [{ ...rule, algorithms: ['RS256'], requiredScopes: [] }];
  const edge = await tested.open({ auth: { ...keysOf('key 0'), jwt } });
  const count = () => queryObjects(VerifiedTokens, { format: 'count' });
  try {
    const before = count();
    for (let reload = 1; reload <= 10; reload++) {
      await (await edge.prepare(tested.configWith({ auth: { ...keysOf(`key ${reload}`), jwt } }))).apply();
    }
    assert.ok(count() - before <= 2, `${before} before, ${count()} after`);
  } finally {
    await edge.close();
  }
});

test('another limit of bodies holds on the fast path and behind the router', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  const limits = tested.configWith({}).limits;
  try {
    const session = await initialize(`${edge.origin}/mcp`);
    const large = rpc(1, 'ping', { _meta: { text: 'x'.repeat(10_000) } });
    const statuses = async () =>
      Promise.all(['/mcp', '/mcp/'].map(async (path) => (await post(`${edge.origin}${path}`, large, session)).status));
    assert.deepEqual(await statuses(), [200, 200]);
    await (await edge.prepare(tested.configWith({ limits: { ...limits, bodyBytes: 5_000 } }))).apply();
    assert.deepEqual(await statuses(), [413, 413]);
  } finally {
    await edge.close();
  }
});

/** Opens the GET stream of a session, and a stream of 2024-11-05; resolves with both, and the path for POSTs of the second. */
async function openStreams(edge: Edge, name: string) {
  const session = await initialize(`${edge.origin}/mcp`, undefined, bearer(name));
  const get = await getEvents(`${edge.origin}/mcp`, session, bearer(name));
  const sse = await getEvents(`${edge.origin}/sse`, undefined, bearer(name));
  await sse.until(({ seen }) => seen.length > 0);
  return { session, get, sse, messages: new URL(sse.seen[0]?.data ?? '', edge.origin).href };
}

test('streams of a removed key end, those of another go on', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann', 'bob') });
  try {
    const [ann, bob] = [await openStreams(edge, 'ann'), await openStreams(edge, 'bob')];
    await (await edge.prepare(tested.configWith({ auth: keysOf('bob') }))).apply();
    await Promise.all([ann.get.ended(), ann.sse.ended()]);
    assert.deepEqual([bob.get.isEnded, bob.sse.isEnded], [false, false]);
    const ping = rpc(1, 'ping');
    assert.equal((await post(bob.messages, ping, undefined, bearer('ann'))).status, 401);
    assert.equal((await post(bob.messages, ping, undefined, bearer('bob'))).status, 202);
    bob.get.close();
    bob.sse.close();
  } finally {
    await edge.close();
  }
});

// SEC-08
test('a stream of a removed key ends, also after a GET of another key that it refused', TIMEOUT, async () => {
  await using tested = await testEdge();
  const auth = keysOf('old', 'new');
  const apiKeys = auth.apiKeys.map((key) => ({ ...key, name: 'ann' }));
  const events = { accept: 'text/event-stream' };
  const edge = await tested.open({ auth: { ...auth, apiKeys } });
  try {
    const url = `${edge.origin}/mcp`;
    const session = await initialize(url, undefined, bearer('old'));
    const get = await getEvents(url, session, bearer('old'));
    const posted = await postForEvents(url, rpc(1, 'ping'), session, { ...bearer('old'), ...events });
    await posted.ended();
    const again = { ...bearer('new'), ...events, 'mcp-session-id': session };
    const refused = await fetch(url, { headers: { ...again, 'last-event-id': posted.seen.at(-1)?.id ?? '' } });
    assert.equal(refused.status, 405, await refused.text());
    await (await edge.prepare(tested.configWith({ auth: { ...auth, apiKeys: apiKeys.slice(1) } }))).apply();
    await get.ended();
  } finally {
    await edge.close();
  }
});

// SEC-08
test('a key that is removed while a body arrives does not run the request', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann', 'bob') });
  try {
    const { session, get, sse } = await openStreams(edge, 'ann');
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
    for (const [body, id] of [
      [rpc(1, 'initialize', params), undefined],
      [rpc(1, 'ping'), session],
    ]) {
      const socket = connect(Number(new URL(edge.origin).port), '127.0.0.1').setEncoding('utf8');
      await once(socket, 'connect');
      const { authorization } = bearer('ann');
      const headers = [
        'Host: 127.0.0.1',
        `Accept: ${BOTH}`,
        'Content-Type: application/json',
        `Authorization: ${authorization}`,
      ];
      const length = `Content-Length: ${Buffer.byteLength(body ?? '')}`;
      const sessionId = id === undefined ? [] : [`Mcp-Session-Id: ${id}`];
      socket.write(['POST /mcp HTTP/1.1', ...headers, ...sessionId, length, '', body?.slice(0, 5)].join('\r\n'));
      await waitUntil(async () => /held_bytes\{kind="bodies"\} [1-9]/.test(await tested.metrics()));
      await (await edge.prepare(tested.configWith({ auth: keysOf('bob') }))).apply();
      socket.write(body?.slice(5) ?? '');
      const [answer]: unknown[] = await once(socket, 'data');
      assert.match(String(answer), /^HTTP\/1\.1 401 /);
      socket.destroy();
      await (await edge.prepare(tested.configWith({ auth: keysOf('ann', 'bob') }))).apply();
    }
    await Promise.all([get.ended(), sse.ended()]);
  } finally {
    await edge.close();
  }
});

/** Opens a subscription stream on a stream of 2024-11-05. */
async function listenOn(sse: Events, url: string, name: string): Promise<void> {
  const listen = modernText('subscriptions/listen', { notifications: { toolsListChanged: true } });
  assert.equal((await post(url, listen, undefined, bearer(name))).status, 202);
  await sse.until(({ seen }) => seen.some(({ data }) => data.includes('acknowledged')));
}

test('idle streams end when the edge drains, and new requests are refused', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann') });
  try {
    const { session, get, sse, messages } = await openStreams(edge, 'ann');
    await listenOn(sse, messages, 'ann');
    assert.equal(edge.endpoints.mcp.listenCount, 1, 'is no request in flight');
    edge.drain(true);
    await Promise.all([get.ended(), sse.ended()]);
    assert.equal((await post(`${edge.origin}/mcp`, rpc(1, 'ping'), session, bearer('ann'))).status, 503);
  } finally {
    await edge.close();
  }
});

test('a stream that no other process can take ends after the calls in flight', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann') });
  try {
    const { session, get, sse } = await openStreams(edge, 'ann');
    edge.drain(false);
    await sse.ended();
    assert.equal((await post(`${edge.origin}/mcp`, rpc(1, 'ping'), session, bearer('ann'))).status, 503);
    assert.equal(get.isEnded, false);
    await Promise.all([edge.finish(PATIENCE_MS), get.ended()]);
    // Many clients try twice, and have to meet the next process.
    assert.ok(get.retryMs !== undefined && get.retryMs >= 2_000, String(get.retryMs));
  } finally {
    await edge.close();
  }
});

test('a stream that was resumed during the end of all processes ends with them', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open();
  try {
    const session = await initialize(`${edge.origin}/mcp`);
    const opened = await getEvents(`${edge.origin}/mcp`, session);
    edge.drain(true, true);
    const { lastId } = await opened.ended();
    const resumed = await getEvents(`${edge.origin}/mcp`, session, { 'last-event-id': lastId });
    assert.equal(resumed.status, 200);
    await Promise.all([edge.retire(PATIENCE_MS, () => true), resumed.ended()]);
    assert.ok(resumed.retryMs !== undefined && resumed.retryMs >= 2_000, String(resumed.retryMs));
  } finally {
    await edge.close();
  }
});

/** Opens a stream of 2024-11-05 with a call that its upstream has not answered. */
async function openBusyStream(edge: Edge, memory: MemoryUpstream) {
  const sse = await getEvents(`${edge.origin}/sse`, undefined);
  await sse.until(({ seen }) => seen.length > 0);
  const url = new URL(sse.seen.shift()?.data ?? '', edge.origin).href;
  const send = async (body: string) => (await post(url, body)).status;
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'old', version: '1' } };
  await send(rpc(0, 'initialize', params));
  await sse.until(({ messages }) => messages.length === 1);
  const before = memory.requests('tools/call').length;
  await send(rpc(1, 'tools/call', { name: 'up__echo' }));
  const call = await memory.until(() => memory.requests('tools/call')[before]);
  const peer = memory.peers.find(({ received }) => received.includes(call));
  return { sse, send, answer: () => peer?.send(result(call, { content: [] })) };
}

test('a reload without legacySse ends each stream after its answers', TIMEOUT, async () => {
  const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
  const memory = memoryUpstream({ lists: { tools }, request: () => undefined });
  await using tested = await testEdge(memory);
  const edge = await tested.open();
  const reload = async (changes: Partial<Config>) => {
    await (await edge.prepare(tested.configWith(changes))).apply();
  };
  try {
    const { sse: idle, messages } = await openStreams(edge, 'ann');
    await listenOn(idle, messages, 'ann');
    const busy = await openBusyStream(edge, memory);
    await reload({ legacySse: false });
    await idle.ended();
    assert.equal(await statusOf(`${edge.origin}/sse`), 404);
    assert.equal(await busy.send(rpc(2, 'ping')), 202);
    busy.answer();
    await busy.sse.until(({ messages }) => messages.some(({ id }) => id === 1));
    await busy.sse.ended();
    assert.equal(await busy.send(rpc(3, 'ping')), 404);

    await reload({});
    const other = await openBusyStream(edge, memory);
    await reload({ legacySse: false, reload: { watch: true, drainMs: 0 } });
    await other.sse.ended();
  } finally {
    await edge.close();
  }
});

test('another limit of bodies holds for the streams of 2024-11-05 that are open', TIMEOUT, async () => {
  await using tested = await testEdge();
  const edge = await tested.open({ auth: keysOf('ann') });
  const { limits } = tested.configWith({});
  try {
    const { get, sse, messages } = await openStreams(edge, 'ann');
    const large = rpc(1, 'ping', { _meta: { text: 'x'.repeat(10_000) } });
    const status = async () => (await post(messages, large, undefined, bearer('ann'))).status;
    assert.equal(await status(), 202);
    const next = tested.configWith({ auth: keysOf('ann'), limits: { ...limits, bodyBytes: 5_000 } });
    await (await edge.prepare(next)).apply();
    assert.equal(await status(), 413);
    get.close();
    sse.close();
  } finally {
    await edge.close();
  }
});

/** Begins a POST without the end of its body. Returns a function that sends the end, and resolves with the response. */
function beginPost(url: string, headers: Readonly<Record<string, string>>) {
  const body = rpc(1, 'ping');
  const own = { accept: BOTH, 'content-type': 'application/json', 'content-length': body.length };
  const request = httpRequest(url, { method: 'POST', headers: { ...own, ...headers } });
  // A failed test closes the edge before the end.
  request.on('error', () => undefined).write(body.slice(0, 5));
  return async () => {
    const answered = responseTo(request.end(body.slice(5)));
    return (await answered).resume();
  };
}

test('a key that is revoked while a body arrives gets the challenge of other keys', TIMEOUT, async () => {
  await using tested = await testEdge();
  const publicUrl = 'https://gateway.example';
  const issuer = 'https://issuer.example';
  const rule = { issuer, jwksUrl: `${issuer}/jwks`, audiences: [], algorithms: ['RS256'], requiredScopes: ['mcp'] };
  const configOf = (...names: string[]) => ({ publicUrl, auth: { ...keysOf(...names), jwt: [rule] } });
  const edge = await tested.open(configOf('ann', 'bob'));
  const stream = await getEvents(`${edge.origin}/sse/up`, undefined, bearer('ann'));
  await stream.until(({ seen }) => seen.length > 0);
  const heldBytes = async () => Number(/held_bytes\{kind="bodies"\} (\d+)/.exec(await tested.metrics())?.[1]);
  const ends: ReturnType<typeof beginPost>[] = [];
  for (const path of ['/mcp/up', stream.seen[0]?.data ?? '']) {
    const before = await heldBytes();
    ends.push(beginPost(`${edge.origin}${path}`, bearer('ann')));
    await waitUntil(async () => (await heldBytes()) > before);
  }
  await (await edge.prepare(tested.configWith(configOf('bob')))).apply();
  const later = await post(`${edge.origin}/mcp/up`, rpc(1, 'ping'), undefined, bearer('ann'));
  const expected = later.headers['www-authenticate'] ?? '';
  const metadata = `${publicUrl}/.well-known/oauth-protected-resource/mcp/up`;
  assert.ok(expected.startsWith(`Bearer resource_metadata="${metadata}", error="invalid_token"`), expected);
  //
  const challenges = [expected, expected.replace(metadata, metadata.replace('/mcp/up', '/sse/up'))];
  for (const [index, end] of ends.entries()) {
    const { statusCode, headers } = await end();
    assert.deepEqual([statusCode, headers['www-authenticate']], [401, challenges[index]]);
  }
});

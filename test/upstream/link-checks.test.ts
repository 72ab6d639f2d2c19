import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../../src/errors.ts';
import type { Link } from '../../src/gateway/exchange/connection-holder.ts';
import { NO_FEATURES } from '../../src/upstream/link/link.ts';
import { HttpStatusError } from '../../src/upstream/rpc/http-status-error.ts';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream, result, type MemoryUpstream } from '../support/memory-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';
import { workTurn } from '../../src/work-turn.ts';

const TIMEOUT = { timeout: 120_000 };
const REMOTE = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;

/** A request or start that fails with this HTTP status. */
const failure = (status: number) =>
  new GatewayError('upstream-unavailable', { message: `HTTP ${status}` }, new HttpStatusError(status));

/** A remote server with statuses by principal: of starts, and of `ping` over open connections. Without one it serves. */
function serving() {
  const starts = new Map<string, number>();
  const pings = new Map<string, number | Promise<number>>();
  const memory = memoryUpstream({
    start: ({ audience }) => {
      const status = starts.get(audience);
      return status === undefined ? Promise.resolve() : Promise.reject(failure(status));
    },
    request: (peer, request) => {
      const status = request.method === 'ping' ? pings.get(peer.audience) : undefined;
      if (status === undefined) peer.send(result(request, {}));
      else if (typeof status === 'number') peer.fail(request.id, failure(status));
      else void status.then((later) => peer.fail(request.id, failure(later)));
    },
  });
  const at = new GatewayParts({ up: { memory, target: REMOTE, credentials: 'principal' } });
  const connect = (key: string) =>
    at.upstream('up').link(at.session({ principal: { key, label: key, scopes: [] } }).session);
  const phase = () => at.upstream('up').lifecycle.phase;
  return { memory, at, starts, pings, connect, phase };
}

/** Resolves when the server was asked this number of times, and the answers were used. */
async function asked(memory: MemoryUpstream, count: number): Promise<void> {
  await memory.until(() => (memory.requests('ping').length >= count ? true : undefined));
  for (let turn = 0; turn < 5; turn++) await nextTurn();
  assert.equal(memory.requests('ping').length, count);
}

for (const { status, phase } of [
  { status: undefined, phase: 'degraded' },
  { status: 429, phase: 'degraded' },
  { status: 403, phase: 'degraded' },
  { status: 401, phase: 'degraded' },
  { status: 404, phase: 'failed' },
  { status: 503, phase: 'failed' },
]) {
  // REL-10
  test(`after a failed start, a server that answers ping with HTTP ${status ?? 200} is ${phase}`, TIMEOUT, async () => {
    const server = serving();
    await using _ = server.at;
    await server.connect('ann');
    if (status !== undefined) server.pings.set('ann', status);
    server.starts.set('bob', 503);
    await assert.rejects(server.connect('bob'));
    await asked(server.memory, 1);
    assert.equal(server.phase(), phase);
  });
}

// REL-10
test('a server that refuses the credentials of one audience is asked with others', TIMEOUT, async () => {
  const server = serving();
  await using _ = server.at;
  await server.connect('ann');
  await server.connect('bob');
  server.pings.set('bob', 401).set('ann', 503);
  server.starts.set('eve', 503);
  await assert.rejects(server.connect('eve'));
  await asked(server.memory, 2);
  assert.equal(server.phase(), 'failed');
});

// REL-10
test('the credentials of one caller say nothing about the server, which is not asked', TIMEOUT, async () => {
  const server = serving();
  await using _ = server.at;
  await server.connect('ann');
  server.pings.set('ann', 503);
  server.starts.set('eve', 401);
  await assert.rejects(server.connect('eve'));
  await asked(server.memory, 0);
  assert.equal(server.phase(), 'ready');
});

for (const { status, phase } of [
  { status: undefined, phase: 'ready' },
  { status: 503, phase: 'ready' },
  { status: 401, phase: 'needs-authorization' },
]) {
  test(`after HTTP 401 of a call, a server that answers ping with ${status ?? 200} is ${phase}`, TIMEOUT, async () => {
    const memory = memoryUpstream({
      request: (peer, request) => {
        const refusal = request.method === 'ping' ? status : 401;
        if (refusal === undefined) peer.send(result(request, {}));
        else peer.fail(request.id, failure(refusal));
      },
    });
    await using at = new GatewayParts({ up: { memory, target: REMOTE } });
    const upstream = at.upstream('up');
    const { connection } = await upstream.link(at.session().session);
    const limits = { timeoutMs: 60_000, maxMs: 60_000, progress: false, context: undefined } as const;
    await assert.rejects(connection.call('tools/call', undefined, limits).answer);
    await asked(memory, 1);
    assert.equal(upstream.lifecycle.phase, phase);
  });
}

test('a server that answers ping and refuses lists with 401 needs authorization', TIMEOUT, async () => {
  const memory = memoryUpstream({
    hold: (peer, { id }) => Promise.resolve(peer.fail(id, failure(401))),
  });
  await using at = new GatewayParts({ up: { memory, target: REMOTE } });
  const upstream = at.upstream('up');
  await assert.rejects(upstream.refresh('legacy', NO_FEATURES, ''));
  assert.equal(upstream.lifecycle.phase, 'needs-authorization');
});

for (const { status, phase } of [
  { status: 401, phase: 'needs-authorization' },
  { status: 503, phase: 'degraded' },
]) {
  test(`HTTP ${status} of one listing for certain capabilities ends by itself`, TIMEOUT, async () => {
    let isRefused = false;
    const memory = memoryUpstream({
      hold: async (peer, { id }) => {
        if (isRefused) peer.fail(id, failure(status));
        isRefused = false;
      },
    });
    await using at = new GatewayParts({ up: { memory, target: REMOTE, isolation: 'session' } });
    const upstream = at.upstream('up');
    await upstream.refresh('legacy', NO_FEATURES, '');
    const { session } = at.session({ capabilities: { elicitation: {} } });
    isRefused = true;
    await assert.rejects(upstream.refresh('legacy', session, ''));
    assert.equal(upstream.lifecycle.phase, phase);
    await waitUntil(() => upstream.lifecycle.phase === 'ready');
  });
}

for (const { status, phase } of [
  { status: 200, phase: 'ready' },
  { status: 401, phase: 'needs-authorization' },
]) {
  test(`after HTTP 401 on the connection of one call, lists with ${status} mean ${phase}`, TIMEOUT, async () => {
    const phases: string[] = [];
    const memory = memoryUpstream({
      hold: async (peer, { id }) => {
        if (phases.push(upstream.lifecycle.phase) > 1 && status === 401) peer.fail(id, failure(status));
      },
      request: (peer, request) => peer.fail(request.id, failure(401)),
    });
    await using at = new GatewayParts({ up: { memory, target: REMOTE, isolation: 'call' } });
    const upstream = at.upstream('up');
    await upstream.refresh('legacy', NO_FEATURES, '');
    const link = await upstream.link(at.session().session);
    upstream.beginCall(link);
    const limits = { timeoutMs: 60_000, maxMs: 60_000, progress: false, context: undefined } as const;
    await assert.rejects(link.connection.call('tools/call', undefined, limits).answer);
    upstream.endCall(link);
    await waitUntil(() => phases.length > 1);
    for (let turn = 0; turn < 5; turn++) await nextTurn();
    assert.deepEqual([...phases, upstream.lifecycle.phase], ['ready', 'ready', phase]);
  });
}

// REL-10
test('starts that fail at once lead to one question, and later ones to another', TIMEOUT, async () => {
  const server = serving();
  await using _ = server.at;
  await server.connect('ann');
  const others = ['bob', 'eve', 'dan'];
  for (const other of others) server.starts.set(other, 503);
  await Promise.allSettled(others.map((other) => server.connect(other)));
  await asked(server.memory, 1);
  assert.equal(server.phase(), 'degraded');
  server.pings.set('ann', 503);
  await Promise.allSettled(others.map((other) => server.connect(other)));
  await waitUntil(() => server.phase() === 'failed');
  await asked(server.memory, 2);
});

// REL-10
test('an answer over an old connection says nothing about one that was opened since', TIMEOUT, async () => {
  const server = serving();
  await using _ = server.at;
  await server.connect('ann');
  const answer = Promise.withResolvers<number>();
  server.pings.set('ann', answer.promise);
  server.starts.set('bob', 503);
  await assert.rejects(server.connect('bob'));
  await asked(server.memory, 1);
  server.starts.delete('bob');
  await server.connect('bob');
  server.starts.set('eve', 429);
  await assert.rejects(server.connect('eve'));
  answer.resolve(503);
  await asked(server.memory, 1);
  assert.equal(server.phase(), 'degraded');
});

// REL-10
test('a connection is in use while a long listing waits between two pages', TIMEOUT, async () => {
  const turns: Promise<void>[] = [];
  const memory: MemoryUpstream = memoryUpstream({
    capabilities: { tools: {} },
    lists: { tools: ['a', 'b'].map((name) => ({ name, inputSchema: { type: 'object' } })) },
    pageItems: 1,
    hold: async (_peer, { params }) => {
      if (params?.raw('cursor') !== undefined) return;
      // Other work of the gateway lets the listing wait for a later turn, in which unused connections are closed.
      for (let piece = 0; piece < 20; piece++) turns.push(workTurn());
      setImmediate(() => upstream.closeIdleLinks(performance.now() + 11_000));
    },
  });
  const at = new GatewayParts({ up: { memory, target: REMOTE } });
  await using _ = at;
  const upstream = at.upstream('up');
  await upstream.refresh('legacy', at.session({ capabilities: { elicitation: {} } }).session, '');
  assert.equal(memory.requests('tools/list').length, 2);
  await Promise.all(turns);
});

// REL-10
test('a connection without a client makes room for none while lists are read over it', TIMEOUT, async () => {
  const turns: Promise<void>[] = [];
  let linking: Promise<Link> | undefined;
  let isAgain = false;
  const memory: MemoryUpstream = memoryUpstream({
    capabilities: { tools: {} },
    lists: { tools: ['a', 'b'].map((name) => ({ name, inputSchema: { type: 'object' } })) },
    pageItems: 1,
    hold: async (_peer, { params }) => {
      if (!isAgain || params?.raw('cursor') !== undefined) return;
      for (let piece = 0; piece < 20; piece++) turns.push(workTurn());
      setImmediate(() => void (linking = upstream.link(session)));
    },
  });
  const at = new GatewayParts({ up: { memory, target: REMOTE, maxConnections: 1 } });
  await using _ = at;
  const upstream = at.upstream('up');
  const { session } = at.session();
  await upstream.refresh('legacy', NO_FEATURES, '');
  isAgain = true;
  await upstream.refresh('legacy', NO_FEATURES, '');
  assert.equal(memory.requests('tools/list').length, 4);
  assert.equal((await linking)?.connection.isClosed, false);
  await Promise.all(turns);
});

// REL-10
test('a connection is in use while its server is asked before a listing', TIMEOUT, async () => {
  let starting: Promise<void> = Promise.resolve();
  const memory = memoryUpstream({
    start: () => starting,
    notification: (peer) => peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'),
  });
  const start: typeof memory.start = async (...args) => ({ ...(await memory.start(...args)), mayKeepState: false });
  const links: Link[] = [];
  const onNotification = (link: Link) => {
    link.hasReportedChange = true;
    links.push(link);
  };
  const at = new GatewayParts({ up: { memory: { ...memory, start }, target: REMOTE } }, { onNotification });
  await using _ = at;
  const upstream = at.upstream('up');
  await upstream.link(at.session().session);
  const { session } = at.session({ capabilities: { elicitation: {} } });
  await upstream.refresh('legacy', session, '');
  const link = links.find(({ place }) => place.purpose === 'discovery');
  assert.ok(link !== undefined);
  link.usedMs -= 11_000;
  const { promise, resolve } = Promise.withResolvers<void>();
  starting = promise;
  const starts = memory.starts;
  const listing = upstream.refresh('legacy', session, '');
  await memory.until(() => memory.starts > starts || undefined);
  upstream.closeIdleLinks(performance.now());
  resolve();
  await listing;
  assert.equal(link.connection.isClosed, false);
});

for (const { unanswered, phase } of [
  { unanswered: ['tools/call'], phase: 'ready' },
  { unanswered: ['tools/call', 'ping'], phase: 'ready' },
  { unanswered: ['tools/call', 'ping', 'tools/list'], phase: 'failed' },
]) {
  // REL-10
  test(`a remote server that does not answer ${unanswered.join(', ')} is ${phase}`, TIMEOUT, async () => {
    let isDown = false;
    const isUnanswered = ({ method }: { readonly method: string }) => isDown && unanswered.includes(method);
    const memory = memoryUpstream({
      request: (peer, request) => {
        if (isUnanswered(request)) peer.fail(request.id, failure(503));
        else peer.send(result(request, {}));
      },
      hold: async (peer, request) => {
        if (isUnanswered(request)) peer.fail(request.id, failure(503));
      },
    });
    await using at = new GatewayParts({ up: { memory, target: REMOTE, isolation: 'shared' } });
    const upstream = at.upstream('up');
    await upstream.refresh('legacy', NO_FEATURES, '');
    const { connection } = await upstream.link(at.session().session);
    isDown = true;
    const limits = { timeoutMs: 60_000, maxMs: 60_000, progress: false, context: undefined } as const;
    await assert.rejects(connection.call('tools/call', undefined, limits).answer);
    const lists = unanswered.includes('ping') ? 2 : 1;
    await memory.until(() => (memory.requests('ping').length > 0 ? true : undefined));
    await memory.until(() => (memory.requests('tools/list').length >= lists ? true : undefined));
    for (let turn = 0; turn < 5; turn++) await nextTurn();
    if (phase === 'failed') await waitUntil(() => upstream.lifecycle.phase === phase);
    assert.equal(upstream.lifecycle.phase, phase);
    isDown = false;
    await waitUntil(() => upstream.lifecycle.phase === 'ready');
    assert.equal(upstream.lifecycle.reason, undefined);
  });
}

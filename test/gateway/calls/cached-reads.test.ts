import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { readOf } from '../../../src/gateway/forward/resource-cache.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { modernUpstream } from '../../support/http-upstream.ts';
import { type MemoryUpstream, memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { tokenOf } from '../../policy/policies.ts';
import { calling } from './calling.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'lib://a';
const CACHED = { ttlMs: 60_000, cacheScope: 'public' };
const CONTENTS = { resultType: 'complete', contents: [{ uri: URI, text: 'a' }] };
const RESOURCES = [{ uri: URI, name: 'a' }];
const TOOLS = [{ name: 'act', inputSchema: { type: 'object' } }];

/** A process of 2026-07-28 with one resource, which may be cached. */
function cachingProcess(): MemoryUpstream {
  return memoryUpstream({
    isRaw: true,
    lists: { resources: RESOURCES },
    request: (peer, request) => {
      if (request.method !== 'server/discover') return peer.send(result(request, { ...CONTENTS, ...CACHED }));
      const capabilities = { resources: {} };
      const discovered = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities };
      return peer.send(result(request, { ...discovered, ...CACHED }));
    },
  });
}

test('a cached read is answered while its upstream has no free slot', TIMEOUT, async () => {
  await using upstream = await modernUpstream({
    tools: TOOLS,
    resources: RESOURCES,
    answers: {
      'resources/read': () => ({ ...CONTENTS, ...CACHED }),
      // The call stays in flight.
      'tools/call': () => undefined,
    },
  });
  await using gateway = await testCore({
    up: { ...upstream.config, rawUris: true, concurrency: 1, queue: 1, queueMs: 15_000 },
  });
  const read = () => modernRequest(gateway, 'resources/read', { uri: URI }).reply;
  const client = await gateway.connect();
  assert.deepEqual((await read()).result?.['contents'], CONTENTS.contents);
  const call = modernRequest(gateway, 'tools/call', toolCall('up__act'));
  await upstream.received.find(({ rpc }) => rpc === 'tools/call');
  const waiting = modernRequest(gateway, 'tools/call', toolCall('up__act'));
  // The queue is full too, so a request that needs a slot is refused at once.
  const refused = await modernRequest(gateway, 'tools/call', toolCall('up__act')).reply;
  assert.match(refused.error?.message ?? '', /1 requests in flight and 1 waiting/);
  assert.deepEqual((await read()).result?.['contents'], CONTENTS.contents);
  assert.deepEqual((await client.result('resources/read', { uri: URI }))['contents'], CONTENTS.contents);
  assert.equal(upstream.requests('resources/read').length, 1);
  for (const { call: pending } of [call, waiting]) pending.cancel('done');
  await Promise.all([call.reply, waiting.reply]);
});

// M-010
test('a cached read may be kept for the rest of its time', TIMEOUT, async (t) => {
  const time = stopTime(t);
  await using upstream = await modernUpstream({
    resources: RESOURCES,
    answers: { 'resources/read': () => ({ ...CONTENTS, ...CACHED }) },
  });
  await using gateway = await testCore({ up: { ...upstream.config, rawUris: true } });
  const ttlMs = async () => (await modernRequest(gateway, 'resources/read', { uri: URI }).reply).result?.['ttlMs'];
  assert.equal(await ttlMs(), 60_000);
  time.pass(59_000);
  assert.equal(await ttlMs(), 1_000);
  assert.equal(upstream.requests('resources/read').length, 1);
  time.pass(1_000);
  assert.equal(await ttlMs(), 60_000);
});

test('a cached read starts no process', TIMEOUT, async () => {
  const memory = cachingProcess();
  const idleMs = 1_000;
  await using gateway = await testCore({ up: { memory, era: 'modern', rawUris: true, idleMs } });
  const read = () => modernRequest(gateway, 'resources/read', { uri: URI }).reply;
  const first = await read();
  assert.deepEqual(first.result?.['contents'], CONTENTS.contents);
  gateway.core.sweep(performance.now() + 2 * idleMs);
  await memory.until(() => memory.open.size === 0 || undefined);
  const { starts } = memory;
  assert.deepEqual((await read()).result?.['contents'], CONTENTS.contents);
  assert.deepEqual([memory.starts, memory.open.size, memory.requests('resources/read').length], [starts, 0, 1]);
});

// M-015
test('a process that has crashed answers no later read', TIMEOUT, async () => {
  const memory = cachingProcess();
  await using gateway = await testCore({ up: { memory, era: 'modern', rawUris: true } });
  const read = () => modernRequest(gateway, 'resources/read', { uri: URI }).reply;
  await read();
  for (const peer of memory.open) peer.crash();
  await memory.until(() => memory.open.size === 0 || undefined);
  await read();
  assert.equal(memory.requests('resources/read').length, 2);
});

test('a read that waited for a slot takes the result of the read before it', TIMEOUT, async () => {
  const held = Promise.withResolvers<void>();
  await using upstream = await modernUpstream({
    resources: RESOURCES,
    answers: {
      'resources/read': (served) => {
        void held.promise.then(() => served.result({ ...CONTENTS, ...CACHED }));
        return undefined;
      },
    },
  });
  await using gateway = await testCore({ up: { ...upstream.config, rawUris: true, concurrency: 1, queueMs: 15_000 } });
  const reads = [1, 2].map(() => modernRequest(gateway, 'resources/read', { uri: URI }).reply);
  await upstream.received.find(({ rpc }) => rpc === 'resources/read');
  held.resolve();
  for (const reply of await Promise.all(reads)) assert.deepEqual(reply.result?.['contents'], CONTENTS.contents);
  assert.equal(upstream.requests('resources/read').length, 1);
});

test('a read in the legacy era is not answered with a result of the modern one', TIMEOUT, async () => {
  const serverInfo = { name: 'dual', version: '1' };
  await using upstream = await modernUpstream({
    resources: RESOURCES,
    answers: {
      initialize: () => ({ protocolVersion: '2025-11-25', capabilities: { resources: {} }, serverInfo }),
      'notifications/initialized': ({ response }) => {
        response.writeHead(202).end();
        return undefined;
      },
      'resources/read': () => ({ ...CONTENTS, ...CACHED }),
    },
  });
  await using gateway = await testCore({ up: { ...upstream.config, era: 'auto', rawUris: true } });
  for (let n = 1; n <= 2; n++) await modernRequest(gateway, 'resources/read', { uri: URI }).reply;
  assert.equal(upstream.requests('resources/read').length, 1);
  const client = await gateway.connect();
  for (let n = 2; n <= 3; n++) {
    assert.deepEqual((await client.result('resources/read', { uri: URI }))['contents'], CONTENTS.contents);
    assert.equal(upstream.requests('resources/read').length, n);
  }
});

test('a read that began before a change is not cached, a later one is', TIMEOUT, async () => {
  const { at, begin, upstream, resourceCache } = await calling(cachingProcess(), { upstream: { era: 'modern' } });
  await using _ = at;
  const { exchange, to } = begin(at.session().session, { uri: URI }, 'resources/read');
  const answer = { kind: 'result', result: JSON.stringify({ ...CONTENTS, ...CACHED }) } as const;
  const read = readOf(exchange.holder, upstream, to.params);
  const before = resourceCache.versionOf('up');
  resourceCache.invalidate('up');
  const isFoundAfter = (version: number) => {
    resourceCache.store(read, version, answer, 0);
    return resourceCache.find(read, 1) !== undefined;
  };
  assert.deepEqual([before, resourceCache.versionOf('up')].map(isFoundAfter), [false, true]);
});

test('a read of a replaced upstream does not answer reads of the new one', TIMEOUT, async () => {
  const held = Promise.withResolvers<void>();
  const contentsOf = (text: string) => ({ ...CONTENTS, ...CACHED, contents: [{ uri: URI, text }] });
  await using old = await modernUpstream({
    tools: TOOLS,
    resources: RESOURCES,
    answers: {
      'resources/read': () => contentsOf('old'),
      'tools/call': (served) => {
        void held.promise.then(() => served.result({ resultType: 'complete', content: [] }));
        return undefined;
      },
    },
  });
  await using fresh = await modernUpstream({
    resources: RESOURCES,
    answers: { 'resources/read': () => contentsOf('new') },
  });
  const before = { ...old.config, rawUris: true, concurrency: 1, queueMs: 15_000 };
  await using gateway = await testCore({ up: before });
  const { core, config } = gateway;
  const read = async () => (await modernRequest(gateway, 'resources/read', { uri: URI }).reply).result?.['contents'];
  const call = modernRequest(gateway, 'tools/call', toolCall('up__act'));
  await old.received.find(({ rpc }) => rpc === 'tools/call');
  const waiting = read();
  await waitUntil(() => core.upstreams.get('up')?.limiter.waitingCount === 1);
  const next = { ...config, upstreams: config.upstreams.map((up) => ({ ...up, ...fresh.config })) };
  const { drained } = await core.apply(next, diffConfigs(config, next));
  held.resolve();
  assert.deepEqual(await waiting, [{ uri: URI, text: 'old' }]);
  assert.deepEqual(await read(), [{ uri: URI, text: 'new' }]);
  await Promise.all([call.reply, drained]);
});

/** Stores the answer to a read of a session, and returns whether reads of others are answered with it. */
async function sharing(isolation: 'session' | 'shared', cacheScope: string) {
  const { at, begin, upstream, resourceCache } = await calling(cachingProcess(), {
    upstream: { era: 'modern', isolation },
  });
  const read = (principal: string, capabilities: object) => {
    const { session } = at.session({ principal: tokenOf(principal), capabilities });
    return readOf(session, upstream, begin(session, { uri: URI }, 'resources/read').to.params);
  };
  const answer = { kind: 'result', result: JSON.stringify({ ...CONTENTS, ...CACHED, cacheScope }) } as const;
  resourceCache.store(read('ada', {}), resourceCache.versionOf('up'), answer, 0);
  const isFound = (principal: string, capabilities: object) =>
    resourceCache.find(read(principal, capabilities), 1) !== undefined;
  const found = [isFound('ada', {}), isFound('ada', { roots: {} }), isFound('bob', {})];
  await at[Symbol.asyncDispose]();
  return found;
}

for (const { isolation, cacheScope, found } of [
  { isolation: 'session', cacheScope: 'private', found: [true, false, false] },
  { isolation: 'session', cacheScope: 'public', found: [true, true, false] },
  { isolation: 'shared', cacheScope: 'private', found: [true, false, false] },
  { isolation: 'shared', cacheScope: 'public', found: [true, true, true] },
] as const) {
  // M-013
  test(`with isolation ${isolation}, a ${cacheScope} result answers the clients it is for`, TIMEOUT, async () => {
    assert.deepEqual(
      await sharing(isolation, cacheScope),
      found,
      'the client, its other capabilities, another principal',
    );
  });
}

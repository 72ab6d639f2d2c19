/** Tests that everything that an API key has open follows the rights of the key. */
import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { openRedisKeys } from '../../src/compose/keys/open-redis-keys.ts';
import { loadConfig } from '../../src/config/load.ts';
import type { StoredKey } from '../../src/store/api-key-store.ts';
import { type Events, getEvents, initialize, messagesOf, post, postForEvents, rpc } from '../downstream/client.ts';
import { type HttpUpstream, legacyUpstream, type Served } from '../support/http-upstream.ts';
import { openGateway } from '../support/open-gateway.ts';
import { modernEvents, modernText } from '../support/modern-wire.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ANN: StoredKey = { name: 'ann', sha256: hash('sha256', 'ann-key'), groups: ['eng', 'sales'] };
const NARROWED: StoredKey = { ...ANN, groups: ['sales'] };
const HEADERS = { authorization: 'Bearer ann-key' };
const URI = 'test://a';
const UPDATED = 'notifications/resources/updated';
const LISTS_CHANGED = 'notifications/tools/list_changed';
const ACCESS = {
  roles: { eng: { upstreams: ['up'] }, sales: { upstreams: ['up'], tools: ['get'] } },
  grants: [
    { roles: ['eng'], groups: ['eng'] },
    { roles: ['sales'], groups: ['sales'] },
  ],
};

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-key-rights-'));
});
after(() => rm(dir, { recursive: true }));

function server(): Promise<HttpUpstream> {
  const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });
  return legacyUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
    tools: [tool('get'), tool('write')],
    resources: [{ uri: URI, name: 'a' }],
    answers: { 'resources/subscribe': () => ({}), 'resources/unsubscribe': () => ({}) },
  });
}

function serversOf({ config: { target } }: HttpUpstream) {
  return { up: { type: 'http', url: 'url' in target ? target.url : '' } };
}

async function storeKeys(file: string, ...keys: readonly StoredKey[]): Promise<void> {
  await writeFile(`${file}.new`, JSON.stringify({ version: 1, keys }), { mode: 0o600 });
  await rename(`${file}.new`, file);
}

async function toolsIn(url: string, session: string): Promise<string> {
  const got = await post(url, rpc(9, 'tools/list'), session, HEADERS);
  return JSON.stringify(messagesOf(got)[0]?.result);
}

/** Opens a session with a stream and a subscription, a stream of 2024-11-05 with its session, and a subscription stream of its own and on that one. */
async function openAll(url: string, near = url) {
  const session = await initialize(url, undefined, HEADERS);
  assert.match(await toolsIn(url, session), /up__write/);
  const subscribed = await post(url, rpc(1, 'resources/subscribe', { uri: `up+${URI}` }), session, HEADERS);
  assert.ok(messagesOf(subscribed)[0]?.result !== undefined, subscribed.text);
  await post(url, '{"jsonrpc":"2.0","method":"notifications/initialized"}', session, HEADERS);
  const get = await getEvents(near, session, HEADERS);
  const sse = await getEvents(url.replace(/\/mcp$/, '/sse'), undefined, HEADERS);
  await sse.until(({ seen }) => seen.length > 0);
  const to = new URL(sse.seen[0]?.data ?? '', url).href;
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  await post(to, rpc(1, 'initialize', params), undefined, HEADERS);
  await sse.until(({ seen }) => seen.some(({ data }) => data.includes('"id":1')));
  await post(to, '{"jsonrpc":"2.0","method":"notifications/initialized"}', undefined, HEADERS);
  const notifications = { toolsListChanged: true, resourceSubscriptions: [`up+${URI}`] };
  await post(to, modernText('subscriptions/listen', { notifications }, { id: 'on-sse' }), undefined, HEADERS);
  await sse.until(({ seen }) => seen.some(({ data }) => /acknowledged.*test:\/\/a/.test(data)));
  const listen = await modernEvents(url, 'subscriptions/listen', { notifications }, { headers: HEADERS });
  await listen.until(({ messages }) => messages.length > 0);
  assert.match(JSON.stringify(listen.messages[0]), /test:\/\/a/);
  return { session, get, sse, listen };
}

async function waitForMessage(events: Events, method: string): Promise<void> {
  await events.until(({ seen }) => seen.some(({ data }) => data.includes(`"${method}"`)));
}

/** Asserts that everything that a key has opened has the rights of the narrowed key. */
async function assertNarrowed(url: string, opened: Awaited<ReturnType<typeof openAll>>, up: HttpUpstream) {
  const { session, get, sse, listen } = opened;
  await Promise.all([waitForMessage(get, LISTS_CHANGED), waitForMessage(sse, LISTS_CHANGED), listen.ended()]);
  await sse.until(({ seen }) => seen.some(({ data }) => data.includes('"id":"on-sse","result"')));
  // The subscription of the session, and that of the group of the subscription stream.
  await waitUntil(() => up.requests('resources/unsubscribe').length >= 2);
  assert.doesNotMatch(await toolsIn(url, session), /up__write/);
  assert.ok(!get.isEnded && !sse.isEnded);
  assert.ok([get, sse, listen].every(({ seen }) => seen.every(({ data }) => !data.includes(UPDATED))));
  get.close();
  sse.close();
}

// SEC-08
test('streams and subscriptions follow the groups of a key in a file', TIMEOUT, async () => {
  const file = join(dir, 'keys.json');
  await storeKeys(file, ANN);
  await using up = await server();
  await using gateway = await openGateway(serversOf(up), { auth: { keyFile: file }, access: ACCESS });
  const opened = await openAll(gateway.url);
  await storeKeys(file, NARROWED);
  await assertNarrowed(gateway.url, opened, up);
});

// SEC-08
test('a call in flight answers a resumed stream though a new one is denied', TIMEOUT, async () => {
  const file = join(dir, 'resumed.json');
  await storeKeys(file, ANN);
  const calls: Served[] = [];
  const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });
  await using up = await legacyUpstream({
    tools: [tool('get'), tool('write')],
    answers: { 'tools/call': (served) => void calls.push(served) },
  });
  await using gateway = await openGateway(serversOf(up), { auth: { keyFile: file }, access: ACCESS });
  const { url } = gateway;
  const session = await initialize(url, undefined, HEADERS);
  const call = { name: 'up__write', arguments: {} };
  const events = await postForEvents(url, rpc(7, 'tools/call', call), session, HEADERS);
  await events.until(({ seen }) => seen.length > 0);
  await waitUntil(() => calls.length === 1);
  const lastId = events.seen.at(-1)?.id ?? '';
  events.close();
  await storeKeys(file, NARROWED);
  await waitUntil(async () => !(await toolsIn(url, session)).includes('up__write'));
  assert.match((await post(url, rpc(10, 'tools/call', call), session, HEADERS)).text, /Unknown tool/);
  assert.equal(calls.length, 1);
  calls[0]?.result({ content: [{ type: 'text', text: 'written' }] });
  const resumed = await getEvents(url, session, { ...HEADERS, 'last-event-id': lastId });
  await resumed.until(({ seen }) => seen.some(({ data }) => data.includes('"id":7')));
  assert.match(resumed.seen.map(({ data }) => data).join(), /written/);
  resumed.close();
  await storeKeys(file);
  await waitUntil(async () => (await getEvents(url, session, { ...HEADERS, 'last-event-id': lastId })).status === 401);
});

// SEC-08
test('streams and subscriptions follow the groups of a key in Redis, at every replica', TIMEOUT, async () => {
  await using redis = await RedisServer.start();
  const wrappingKeys = [randomBytes(32).toString('base64')];
  const shared = { url: redis.url, wrappingKeys, internal: '127.0.0.1:0' };
  const own = { auth: { keysInRedis: true }, access: ACCESS, redis: shared };
  const config = join(dir, 'redis.json');
  await writeFile(config, JSON.stringify({ mcpServers: {}, gateway: { auth: own.auth, redis: shared } }));
  const { config: loaded } = await loadConfig(config, { env: process.env });
  assert.ok(loaded.redis !== undefined);
  await using keys = await openRedisKeys(loaded.redis);
  await keys.store.change(() => ({ add: [ANN] }));
  await using up = await server();
  await using one = await openGateway(serversOf(up), own);
  await using two = await openGateway(serversOf(up), own);
  const first = await openAll(one.url);
  // The stream of this session is passed on to the replica that has the session.
  const second = await openAll(two.url, one.url);
  await keys.store.change(() => ({ add: [NARROWED] }));
  await Promise.all([assertNarrowed(one.url, first, up), assertNarrowed(two.url, second, up)]);
});

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import * as z from 'zod';
import { tryStart } from '../../../src/cli/trial-start.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { LIMITS } from '../../../src/limits.ts';
import { META } from '../../../src/protocol/meta.ts';
import { initialize, messagesOf, post, rpc } from '../../downstream/client.ts';
import { testCore } from '../../support/core.ts';
import { freePort } from '../../support/free-port.ts';
import { type HttpUpstream, modernUpstream } from '../../support/http-upstream.ts';
import { modernResult } from '../../support/modern-wire.ts';
import { openGateway, type OpenGateway } from '../../support/open-gateway.ts';
import { TcpRelay } from '../../support/tcp-relay.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const BRIDGE = join(import.meta.dirname, '../../fixtures/servers/bridge-stdio.ts');

type Members = Readonly<Record<string, unknown>>;

const LIST = z.object({
  tools: z.array(z.object({ name: z.string() })),
  _meta: z.object({ [META.endpoints]: z.array(z.string()) }),
});

const CACHED = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };

interface Listed {
  readonly names: readonly string[];
  readonly endpoints: readonly string[];
}

function read(result: unknown): Listed {
  const { tools, _meta } = LIST.parse(result);
  return { names: tools.map(({ name }) => name), endpoints: _meta[META.endpoints] ?? [] };
}

async function modernList(url: string): Promise<Listed> {
  return read(await modernResult(url, 'tools/list'));
}

/** Returns the list of a new client with a session. */
async function legacyList(url: string): Promise<Listed> {
  const session = await initialize(url);
  const got = await post(url, rpc(1, 'tools/list'), session);
  return read(messagesOf(got).find(({ id }) => id === 1)?.result);
}

const LISTS = [modernList, legacyList];

/** Waits until clients of both eras get these tools, in any order. */
async function waitForTools(url: string, ...names: readonly string[]): Promise<void> {
  for (const list of LISTS) await waitUntil(async () => isSame((await list(url)).names, names));
}

function isSame(one: readonly string[], other: readonly string[]): boolean {
  return one.toSorted().join(' ') === other.toSorted().join(' ');
}

const STATUS = z.object({
  upstreams: z.array(
    z.object({
      id: z.string(),
      tools: z.number(),
      filteredTools: z.number(),
      eras: z.object({
        legacy: z.object({ listProblems: z.array(z.string()) }),
        modern: z.object({ listProblems: z.array(z.string()) }),
      }),
    }),
  ),
});

async function statusOf({ operatorUrl }: OpenGateway, upstream: string) {
  const { upstreams } = STATUS.parse(await (await fetch(`${operatorUrl}/status`)).json());
  const found = upstreams.find(({ id }) => id === upstream);
  assert.ok(found);
  return { ...found, problems: [...found.eras.legacy.listProblems, ...found.eras.modern.listProblems] };
}

/** Waits until a counter is not 0. */
async function waitForMetric(gateway: OpenGateway, series: string): Promise<void> {
  const isCounted = (line: string) => line.startsWith(series) && !line.endsWith(' 0');
  await waitUntil(async () => (await gateway.metrics()).split('\n').some(isCounted));
}

/** A server with tools that can be added to. */
async function growing(first = 'echo') {
  const tools = [{ name: first, inputSchema: { type: 'object' } }];
  const server = await modernUpstream({ tools });
  const add = (name: string) => {
    tools.push({ name, inputSchema: { type: 'object' } });
    server.notify('notifications/tools/list_changed');
  };
  return { add, ...server };
}

/** The first lists of gateways that wait for each other come after this time. */
const WAIT = { wait: '1s' }; // subject

/** Opens a gateway at a port that was chosen before. */
function openAt(port: number, mcpServers: Readonly<Record<string, Members>>, own: object = {}): Promise<OpenGateway> {
  return openGateway(mcpServers, { listen: `127.0.0.1:${port}`, lists: WAIT, ...own });
}

function urlOf(port: number, view?: string): string {
  return `http://127.0.0.1:${port}/mcp${view === undefined ? '' : `/${view}`}`;
}

const bridgeTo = (url: string) => ({ command: process.execPath, args: [BRIDGE, url] });

test('a list answer of either era names the endpoint by one pseudonym', TIMEOUT, async () => {
  await using server = await growing();
  await using gateway = await openGateway({ up: { url: server.url } });
  for (const list of LISTS) {
    const { endpoints } = await list(gateway.url);
    assert.equal(endpoints.length, 1);
    assert.match(endpoints[0] ?? '', /^[\w-]{16}$/);
    assert.deepEqual((await list(gateway.url)).endpoints, endpoints);
    assert.notDeepEqual((await list(`${gateway.url}/up`)).endpoints, endpoints);
  }
  assert.deepEqual((await modernList(gateway.url)).endpoints, (await legacyList(gateway.url)).endpoints);
  for (const method of ['prompts/list', 'resources/list', 'resources/templates/list']) {
    const { _meta } = LIST.pick({ _meta: true }).parse(await modernResult(gateway.url, method));
    assert.deepEqual(_meta[META.endpoints], (await modernList(gateway.url)).endpoints, method);
  }
});

for (const [way, entryOf] of [
  ['through a stdio bridge', (port: number) => bridgeTo(urlOf(port))],
  ['by another address', (port: number) => ({ url: urlOf(port) })],
] as const) {
  test(`a gateway that has itself as an upstream ${way} refuses its lists`, TIMEOUT, async () => {
    await using server = await growing();
    const port = await freePort();
    await using relay = await TcpRelay.open(port);
    await using gateway = await openAt(port, { up: { url: server.url }, self: entryOf(relay.port) });
    await waitForTools(gateway.url, 'up__echo');
    await waitUntil(async () => (await statusOf(gateway, 'self')).problems.length > 0);
    server.add('second');
    await waitForTools(gateway.url, 'up__echo', 'up__second');
    const { tools, filteredTools, problems } = await statusOf(gateway, 'self');
    assert.deepEqual({ tools, filteredTools }, { tools: 0, filteredTools: 0 });
    assert.match(
      problems[0] ?? '',
      /^its lists are refused: they have those of this gateway itself \(\/mcp\).*Remove "self"/,
    );
    await waitUntil(() =>
      gateway.lines.some((line) => /"upstream":"self".*lists of an upstream are refused/.test(line)),
    );
    await waitForMetric(gateway, 'linkspan_list_repairs_total{repair="lists refused"}');
    const { config } = await loadConfig(gateway.file, { env: {} });
    const trial = (await tryStart(config)).upstreams.find(({ id }) => id === 'self');
    assert.match(trial?.listProblems[0] ?? '', /^its lists are refused/, 'validate --start says so too');
    assert.deepEqual(trial?.emptyAt, ['/mcp', '/mcp/self']);
    // No call goes round either.
    const session = await initialize(`${gateway.url}/self`);
    const call = { name: 'any', arguments: {} };
    assert.match((await post(`${gateway.url}/self`, rpc(1, 'tools/call', call), session)).text, /"error":/);
  });
}

async function twoServers(): Promise<{
  a: HttpUpstream & { add(name: string): void };
  b: HttpUpstream & { add(name: string): void };
}> {
  return { a: await growing('one'), b: await growing('two') };
}

for (const order of ['one after the other', 'together'] as const) {
  test(`two gateways that name each other and start ${order} do not grow`, TIMEOUT, async () => {
    const servers = await twoServers();
    await using _a = servers.a;
    await using _b = servers.b;
    const [portA, portB] = [await freePort(), await freePort()];
    const openA = () => openAt(portA, { own: { url: servers.a.url }, b: { url: urlOf(portB) } });
    const openB = () => openAt(portB, { own: { url: servers.b.url }, a: { url: urlOf(portA) } });
    const opened = order === 'together' ? await Promise.all([openA(), openB()]) : [await openA(), await openB()];
    await using a = opened[0];
    await using b = opened[1];
    assert.ok(a && b);
    const isNoticed = async () =>
      (await statusOf(a, 'b')).problems.length > 0 || (await statusOf(b, 'a')).problems.length > 0;
    await waitUntil(async () => {
      for (const list of LISTS) await Promise.all([list(a.url), list(b.url)]);
      return await isNoticed();
    });
    for (const name of ['three', 'four', 'five']) {
      servers.a.add(name);
      servers.b.add(name);
      const isThere = async ({ url }: OpenGateway) =>
        (await modernList(url)).names.includes(`own__${name}`) &&
        (await legacyList(url)).names.includes(`own__${name}`);
      await waitUntil(async () => (await isThere(a)) && (await isThere(b)));
      for (const list of LISTS) {
        for (const { url } of [a, b]) {
          const { names } = await list(url);
          assert.deepEqual(
            names.filter((one) => /__(?:a|b)__/.test(one)),
            [],
            'nothing comes back',
          );
        }
      }
    }
    assert.ok(await isNoticed(), 'it stays noticed');
  });
}

test('a chain of three gateways keeps working, also past a profile that leads nowhere', TIMEOUT, async () => {
  await using server = await growing();
  const port = await freePort();
  const profiles = { plain: { upstreams: ['up'] } };
  // C has A's profile, which does not have B.
  await using c = await openGateway({ leaf: { url: server.url }, a: { url: urlOf(port, 'plain') } });
  await using b = await openGateway({ c: { url: c.url } });
  await using a = await openAt(port, { up: { url: server.url }, b: bridgeTo(b.url) }, { profiles });
  await waitForTools(a.url, 'up__echo', 'b__c__leaf__echo', 'b__c__a__up__echo');
  server.add('second');
  const all = ['up__', 'b__c__leaf__', 'b__c__a__up__'].flatMap((prefix) => [`${prefix}echo`, `${prefix}second`]);
  await waitForTools(a.url, ...all);
  assert.equal((await modernList(a.url)).endpoints.length, 4);
  assert.deepEqual((await statusOf(a, 'b')).problems, []);
});

test('lists that lead back stay refused until their upstream is restarted', TIMEOUT, async () => {
  const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
  let named: readonly string[] = [];
  const toolsList = () => ({ ...CACHED, tools, _meta: { [META.endpoints]: named } });
  await using server = await modernUpstream({ tools, answers: { 'tools/list': toolsList } });
  await using gateway = await testCore({ up: server.config });
  const client = await gateway.connect();
  const listed = async () => read(await client.result('tools/list'));
  const { names, endpoints } = await listed();
  assert.deepEqual(names, ['up__echo']);
  named = endpoints;
  server.notify('notifications/tools/list_changed');
  await waitUntil(async () => (await listed()).names.length === 0);
  named = [];
  const before = server.requests('tools/list').length;
  server.notify('notifications/tools/list_changed');
  await waitUntil(async () => (await listed()).names.length === 0 && server.requests('tools/list').length > before);
  tools[0] = { name: 'other', inputSchema: { type: 'object' } };
  server.notify('notifications/tools/list_changed');
  await waitUntil(() => server.requests('tools/list').length > before + 1);
  assert.deepEqual((await listed()).names, []);
  await gateway.core.upstreamChanges.restart('up', 0);
  await waitUntil(async () => isSame((await listed()).names, ['up__other']));
  await gateway.restart();
  await waitUntil(async () => isSame((await listed()).names, ['up__other']));
  assert.deepEqual((await listed()).endpoints, endpoints, 'a restart of the gateway keeps the pseudonym');
});

test('limit listEndpoints: lists that have come through more endpoints are refused', TIMEOUT, async () => {
  const endpoints = Array.from({ length: LIMITS.listEndpoints + 1 }, (_, i) => `endpoint${i}`.padEnd(16, '-'));
  const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
  let shown = endpoints.slice(1);
  const answer = () => ({ ...CACHED, tools, _meta: { [META.endpoints]: shown } });
  await using server = await modernUpstream({ tools, answers: { 'tools/list': answer } });
  await using gateway = await openGateway({ up: { url: server.url } });
  await waitForTools(gateway.url, 'up__echo');
  assert.deepEqual((await modernList(gateway.url)).endpoints.slice(1), shown);
  shown = endpoints;
  server.notify('notifications/tools/list_changed');
  await waitForTools(gateway.url);
  assert.match(
    (await statusOf(gateway, 'up')).problems[0] ?? '',
    /refused: they have come through more than 64 endpoints/,
  );
  await waitForMetric(gateway, 'linkspan_limit_reached_total{limit="listEndpoints"}');
});

test('malformed names of endpoints are left out', TIMEOUT, async () => {
  const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
  for (const odd of ['text', 7, null, { a: 1 }, ['short', 3, 'x'.repeat(17), '"><script>alert(']]) {
    const answer = () => ({ ...CACHED, tools, _meta: { [META.endpoints]: odd } });
    await using server = await modernUpstream({ tools, answers: { 'tools/list': answer } });
    await using gateway = await openGateway({ up: { url: server.url } });
    const { names, endpoints } = await modernList(gateway.url);
    assert.deepEqual([names, endpoints.length], [['up__echo'], 1], JSON.stringify(odd));
  }
});

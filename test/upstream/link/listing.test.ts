import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as z from 'zod';
import { LIMITS } from '../../../src/limits.ts';
import {
  legacyUpstream,
  modernUpstream,
  refuseWith,
  type Served,
  type ServerScript,
} from '../../support/http-upstream.ts';
import { modernResult } from '../../support/modern-wire.ts';
import { openGateway, type OpenGateway } from '../../support/open-gateway.ts';
import { usedBytes } from '../../support/used-bytes.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

function tool(name: string, bytes = 10) {
  return { name, description: 'd'.repeat(bytes), inputSchema: { type: 'object' } };
}

/** Lists the tools of a gateway with one server that gives these answers. Counts the requests to the server. */
async function listOf(answer: (page: number) => Readonly<Record<string, unknown>>, script: ServerScript = {}) {
  let page = 0;
  const toolsList = (_served: Served) => answer(page++);
  const capabilities = { tools: {} };
  await using upstream = await legacyUpstream({ capabilities, ...script, answers: { 'tools/list': toolsList } });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const tools: string[] = [];
  for (let cursor: unknown, pages = 0; pages < 200; pages++) {
    const result = await modernResult(gateway.url, 'tools/list', cursor === undefined ? {} : { cursor });
    const listed: unknown = result['tools'];
    assert.ok(Array.isArray(listed));
    tools.push(...listed.map((one: unknown) => String(Object.getOwnPropertyDescriptor(Object(one), 'name')?.value)));
    cursor = result['nextCursor'];
    if (cursor === undefined) break;
  }
  return { tools, requests: page, metrics: await gateway.metrics() };
}

// N-21
test('limit listingBytes: an endless listing of large tools keeps the first tools', TIMEOUT, async () => {
  const before = usedBytes();
  const { tools, requests, metrics } = await listOf((page) => ({
    tools: Array.from({ length: 50 }, (_, i) => tool(`t${page}-${i}`, 30_000)),
    nextCursor: `c${page}`,
  }));
  assert.ok(requests * 50 * 30_000 < 2 * LIMITS.listingBytes, `${requests} pages were read`);
  assert.ok(tools.length >= 400, `${tools.length} tools`);
  assert.equal(tools[0], 'up__t0-0');
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingBytes"\} 1/);
  // Sockets and their buffers are released some turns after the gateway has closed.
  await waitUntil(() => usedBytes() - before < 6 * LIMITS.listingBytes);
});

// N-21
test('limit listingItems: items beyond the limit are left out', TIMEOUT, async () => {
  const { tools, metrics } = await listOf((page) => ({
    tools: Array.from({ length: 20_000 }, (_, i) => tool(`t${page}-${i}`)),
    nextCursor: `c${page}`,
  }));
  assert.equal(tools.length, LIMITS.listingItems);
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingItems"\} 1/);
});

test('limit listingItems: entries that are not objects count, too', TIMEOUT, async () => {
  const { tools, requests, metrics } = await listOf((page) => ({
    tools: [tool(`t${page}`), ...Array.from({ length: 20_000 }, () => 5)],
    nextCursor: `c${page}`,
  }));
  assert.deepEqual(tools, ['up__t0', 'up__t1', 'up__t2']);
  assert.equal(requests, 3);
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingItems"\} 1/);
});

test('limit listProblems: a list with more is served, and the first are reported', TIMEOUT, async () => {
  const properties = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`p${i}`, 1]));
  const tools = Array.from({ length: 7_500 }, (_, i) => ({
    name: `t${i}`,
    inputSchema: { type: 'object', properties },
  }));
  await using upstream = await legacyUpstream({
    capabilities: { tools: {} },
    answers: { 'tools/list': () => ({ tools }) },
  });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const { tools: page } = z
    .object({ tools: z.array(z.unknown()) })
    .parse(await modernResult(gateway.url, 'tools/list'));
  assert.ok(page.length > 0);
  const { state, problems } = await statusOf(gateway);
  assert.equal(state, 'ready');
  assert.equal(problems[0], 'tool "t0": member left out: inputSchema.properties.p0');
  assert.equal(problems.at(-1), `and ${LIMITS.listProblems - 50} more`);
  await waitUntil(async () =>
    (await gateway.metrics()).includes('linkspan_limit_reached_total{limit="listProblems"} 1'),
  );
});

// N-21
test('limit listingPages: an endless listing of empty pages ends', TIMEOUT, async () => {
  const { tools, requests, metrics } = await listOf((page) => ({
    tools: page === 0 ? [tool('only')] : [],
    nextCursor: `c${page}`,
  }));
  assert.deepEqual(tools, ['up__only']);
  assert.equal(requests, LIMITS.listingPages);
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingPages"\} 1/);
});

// N-21
test('a repeated cursor ends the listing', TIMEOUT, async () => {
  const { tools, requests } = await listOf((page) => ({ tools: [tool(`t${page}`)], nextCursor: `c${page % 2}` }));
  assert.deepEqual(tools, ['up__t0', 'up__t1', 'up__t2']);
  assert.equal(requests, 3);
});

// N-21 M-008
test('a page that comes again for its own empty cursor counts once', TIMEOUT, async () => {
  const toolsList = () => ({ tools: [tool('t')], nextCursor: '' });
  await using upstream = await legacyUpstream({ capabilities: { tools: {} }, answers: { 'tools/list': toolsList } });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  assert.deepEqual(await namesIn(gateway, 'tools'), ['up__t']);
  assert.deepEqual((await statusOf(gateway)).problems, []);
});

const STATUS = z.object({
  upstreams: z.tuple([
    z.object({
      state: z.string(),
      reason: z.string().optional(),
      eras: z.object({ legacy: z.object({ listProblems: z.array(z.string()) }) }),
    }),
  ]),
});

/** Returns the state of the only upstream of a gateway, with the reason and the problems of its lists. */
async function statusOf({ operatorUrl }: OpenGateway) {
  const { upstreams } = STATUS.parse(await (await fetch(`${operatorUrl}/status`)).json());
  const [{ state, reason = '', eras }] = upstreams;
  return { state, reason, problems: eras.legacy.listProblems };
}

/** Returns the names in a list of a gateway. */
async function namesIn({ url }: OpenGateway, list: 'tools' | 'prompts' | 'resources', capabilities = {}) {
  const items: unknown = (await modernResult(url, `${list}/list`, {}, { capabilities }))[list];
  return z
    .array(z.looseObject({ name: z.string() }))
    .parse(items)
    .map(({ name }) => name);
}

// M-009
test('a cursor that is not a string ends the listing, and is reported', TIMEOUT, async () => {
  const toolsList = () => ({ tools: [tool('t')], nextCursor: 2 });
  await using upstream = await legacyUpstream({ capabilities: { tools: {} }, answers: { 'tools/list': toolsList } });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  assert.deepEqual(await namesIn(gateway, 'tools'), ['up__t']);
  const { state, problems } = await statusOf(gateway);
  assert.deepEqual([state, problems.length], ['ready', 1]);
  assert.match(problems[0] ?? '', /"tools\/list": .*"nextCursor" is not a string/);
});

const ALL = { tools: {}, prompts: {}, resources: {} };
const PROMPTS = [{ name: 'p' }];
const RESOURCES = [{ name: 'r', uri: 'https://r/' }];

function beginSession({ response }: Served) {
  response.setHeader('mcp-session-id', 's-1');
  return { protocolVersion: '2025-11-25', capabilities: ALL, serverInfo: { name: 'scripted', version: '1' } };
}

const FAULTS: readonly { fault: string; answer: (served: Served) => undefined | Record<string, unknown> }[] = [
  { fault: 'an error', answer: refuseWith({ code: -32_603, message: 'boom' }) },
  { fault: 'HTTP 500', answer: ({ response }) => void response.writeHead(500).end() },
  { fault: 'a reset', answer: ({ response }) => void response.destroy() },
  { fault: 'a text as the list', answer: () => ({ tools: '', prompts: '', resources: '', resourceTemplates: '' }) },
];

for (const method of ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list']) {
  for (const { fault, answer } of FAULTS) {
    // M-028
    test(`${fault} as answer to ${method} hides no other list`, TIMEOUT, async () => {
      const script = { capabilities: ALL, tools: [tool('t')], prompts: PROMPTS, resources: RESOURCES };
      await using upstream = await legacyUpstream({ ...script, answers: { [method]: answer } });
      await using gateway = await openGateway({ up: { url: upstream.url } });
      assert.deepEqual(await namesIn(gateway, 'tools'), method === 'tools/list' ? [] : ['up__t']);
      assert.deepEqual(await namesIn(gateway, 'prompts'), method === 'prompts/list' ? [] : ['up__p']);
      assert.deepEqual(await namesIn(gateway, 'resources'), method === 'resources/list' ? [] : ['r']);
      const { state, reason, problems } = await statusOf(gateway);
      assert.deepEqual([state, problems.length], ['degraded', 1]);
      assert.match(reason, /\S/);
      assert.match(problems[0] ?? '', new RegExp(`"${method}": .*cannot be read`));
      // It is tried again without a client.
      const before = upstream.requests(method).length;
      await waitUntil(() => upstream.requests(method).length > before);
    });
  }

  for (const status of [404, 405, 501]) {
    // M-028
    test(`HTTP ${status} as answer to ${method} hides no other list`, TIMEOUT, async () => {
      const script = { capabilities: ALL, tools: [tool('t')], prompts: PROMPTS, resources: RESOURCES };
      const refuse = ({ response }: Served) => void response.writeHead(status).end();
      await using upstream = await legacyUpstream({
        ...script,
        answers: { initialize: beginSession, [method]: refuse },
      });
      await using gateway = await openGateway({ up: { url: upstream.url } });
      assert.deepEqual(await namesIn(gateway, 'tools'), method === 'tools/list' ? [] : ['up__t']);
      assert.deepEqual(await namesIn(gateway, 'prompts'), method === 'prompts/list' ? [] : ['up__p']);
      assert.deepEqual(await namesIn(gateway, 'resources'), method === 'resources/list' ? [] : ['r']);
      // A server of tools has them. Another list that it declares may be missing.
      assert.equal((await statusOf(gateway)).state, method === 'tools/list' ? 'degraded' : 'ready');
      assert.equal(upstream.requests('initialize').length, 1);
    });
  }

  // M-028
  test(`null as the list of ${method} is an empty list`, TIMEOUT, async () => {
    const empty = () => ({ tools: null, prompts: null, resources: null, resourceTemplates: null });
    const script = { capabilities: ALL, tools: [tool('t')], prompts: PROMPTS, resources: RESOURCES };
    await using upstream = await legacyUpstream({ ...script, answers: { [method]: empty } });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    assert.deepEqual(await namesIn(gateway, 'tools'), method === 'tools/list' ? [] : ['up__t']);
    const { state, problems } = await statusOf(gateway);
    assert.deepEqual([state, problems.length], ['ready', 1]);
    assert.match(problems[0] ?? '', new RegExp(`"${method}": .*null`));
  });
}

// M-028
test('a list that fails later keeps its items, and is ready when it can be read', TIMEOUT, async () => {
  let resources: readonly object[] = RESOURCES;
  let fails = false;
  const refuse = refuseWith({ code: -32_603, message: 'boom' });
  const list = (served: Served) => (fails ? refuse(served) : { resources });
  const script = { capabilities: ALL, tools: [tool('t')], prompts: PROMPTS, answers: { 'resources/list': list } };
  await using upstream = await legacyUpstream(script);
  await using gateway = await openGateway({ up: { url: upstream.url } });
  assert.deepEqual(await namesIn(gateway, 'resources'), ['r']);
  fails = true;
  // Clients with other capabilities have lists of their own, which are read now.
  const capabilities = { elicitation: {} };
  assert.deepEqual(await namesIn(gateway, 'tools', capabilities), ['up__t']);
  await waitUntil(async () => (await statusOf(gateway)).state === 'degraded');
  assert.deepEqual(await namesIn(gateway, 'resources', capabilities), ['r']);
  fails = false;
  resources = [{ name: 'later', uri: 'https://later/' }];
  assert.deepEqual(await namesIn(gateway, 'resources', { sampling: {} }), ['later']);
  await waitUntil(async () => (await statusOf(gateway)).state === 'ready');
});

// M-028
test('a list that is answered HTTP 404 later keeps its items', TIMEOUT, async () => {
  let fails = false;
  const list = ({ response }: Served) => (fails ? void response.writeHead(404).end() : { resources: RESOURCES });
  const script = { capabilities: ALL, tools: [tool('t')], prompts: PROMPTS, answers: { 'resources/list': list } };
  await using upstream = await legacyUpstream(script);
  await using gateway = await openGateway({ up: { url: upstream.url } });
  assert.deepEqual(await namesIn(gateway, 'resources'), ['r']);
  fails = true;
  assert.deepEqual(await namesIn(gateway, 'tools', { elicitation: {} }), ['up__t']);
  await waitUntil(async () => (await statusOf(gateway)).state === 'degraded');
  assert.deepEqual(await namesIn(gateway, 'resources', { elicitation: {} }), ['r']);
});

// M-029
test('a result of another type than a list keeps the items that are known', TIMEOUT, async () => {
  let resultType = 'complete';
  const list = () =>
    resultType === 'complete' ? { resultType, tools: [tool('t')], ttlMs: 0, cacheScope: 'private' } : { resultType };
  await using upstream = await modernUpstream({ capabilities: { tools: {} }, answers: { 'tools/list': list } });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  assert.deepEqual(await namesIn(gateway, 'tools'), ['up__t']);
  for (const [odd, capabilities] of [
    ['com.example/stale', { elicitation: {} }],
    ['input_required', { sampling: {} }],
  ] as const) {
    resultType = odd;
    // Clients with other capabilities have lists of their own, which are read now.
    assert.deepEqual(await namesIn(gateway, 'tools', capabilities), ['up__t']);
  }
});

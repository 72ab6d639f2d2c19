import assert from 'node:assert/strict';
import { test } from 'node:test';
import { legacyUpstream, modernUpstream, type ServerScript } from '../support/http-upstream.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { until } from '../support/stdio.ts';
import { openGateway } from '../support/open-gateway.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const KEY = 'io.modelcontextprotocol/';
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };

const EVERYTHING: ServerScript = {
  tools: [ECHO],
  prompts: [{ name: 'greet' }],
  resources: [{ uri: 'file:///a', name: 'a' }],
  resourceTemplates: [{ uriTemplate: 'file:///{x}', name: 't' }],
};

const CACHED = [
  ['server/discover', {}],
  ['tools/list', {}],
  ['prompts/list', {}],
  ['resources/list', {}],
  ['resources/templates/list', {}],
] as const;

/** Returns the caching fields of a result. */
function cachingOf({ ttlMs, cacheScope }: Record<string, unknown>) {
  return { ttlMs, cacheScope };
}

// M-010 L-001
test('discover, lists and reads of either era have caching fields', TIMEOUT, async () => {
  const reads = { 'resources/read': () => ({ contents: [{ uri: 'file:///a', text: 'a' }] }) };
  const hasty = {
    'resources/read': () => ({ resultType: 'complete', contents: [], ttlMs: -5.5, cacheScope: 'everybody' }),
  };
  await using legacy = await legacyUpstream({ ...EVERYTHING, answers: reads });
  await using modern = await modernUpstream({ ...EVERYTHING, answers: hasty });
  await using gateway = await openGateway({ old: { url: legacy.url }, new: { url: modern.url } });
  await modernResult(gateway.url, 'tools/list');
  const asked = [
    ...CACHED,
    ['resources/read', { uri: 'old+file:///a' }],
    ['resources/read', { uri: 'new+file:///a' }],
  ] as const;
  for (const [method, params] of asked) {
    const { ttlMs, cacheScope, resultType, _meta } = await modernResult(gateway.url, method, params);
    assert.ok(typeof ttlMs === 'number' && Number.isInteger(ttlMs) && ttlMs >= 0, `${method} ${String(ttlMs)}`);
    assert.ok(cacheScope === 'private' || cacheScope === 'public', method);
    assert.equal(resultType, 'complete', method);
    assert.match(JSON.stringify(_meta), /"io.modelcontextprotocol\/serverInfo":\{"name":"linkspan"/, method);
  }
});

// M-012
test('merged lists have the shortest ttl, and are public only if all parts are', TIMEOUT, async (t) => {
  const time = stopTime(t);
  await using short = await modernUpstream({ tools: [ECHO], caching: { ttlMs: 60_000, cacheScope: 'public' } });
  await using long = await modernUpstream({ tools: [ECHO], caching: { ttlMs: 90_000, cacheScope: 'public' } });
  await using own = await modernUpstream({ tools: [ECHO], caching: { ttlMs: 70_000, cacheScope: 'private' } });
  await using old = await legacyUpstream({ tools: [ECHO] });
  await using gateway = await openGateway(
    { short: { url: short.url }, long: { url: long.url }, own: { url: own.url }, old: { url: old.url } },
    {
      profiles: {
        pair: { upstreams: ['short', 'long'] },
        three: { upstreams: ['long', 'own'] },
        mixed: { upstreams: ['long', 'old'] },
      },
    },
  );
  const profiles = [
    ['pair', 60_000, 'public'],
    ['three', 70_000, 'private'],
    ['mixed', 0, 'private'],
  ] as const;
  for (const [profile] of profiles) await modernResult(`${gateway.url}/${profile}`, 'tools/list');
  for (const ageMs of [0, 20_000]) {
    time.pass(ageMs);
    for (const [profile, statedMs, cacheScope] of profiles) {
      const ttlMs = Math.max(0, statedMs - ageMs);
      for (const method of ['server/discover', 'tools/list', 'prompts/list']) {
        const result = await modernResult(`${gateway.url}/${profile}`, method);
        assert.deepEqual(cachingOf(result), { ttlMs, cacheScope }, `${profile} ${method}`);
      }
    }
  }
});

// M-010
test('an outdated list has ttl 0 until its upstream is listed again', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const held = Promise.withResolvers<void>();
  const caching = { ttlMs: 60_000, cacheScope: 'public' };
  let lists = 0;
  const answers: ServerScript['answers'] = {
    'tools/list': (served) => {
      const list = { resultType: 'complete', tools: [ECHO], ...caching };
      if (++lists === 1) return list;
      void held.promise.then(() => served.result(list));
      return undefined;
    },
  };
  await using upstream = await modernUpstream({ tools: [ECHO], caching, answers });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const ttlMs = async () => (await modernResult(gateway.url, 'tools/list'))['ttlMs'];
  assert.equal(await ttlMs(), 60_000);
  time.pass(60_001);
  assert.equal(await ttlMs(), 0);
  held.resolve();
  await waitUntil(async () => (await ttlMs()) === 60_000);
});

// M-010
test('a client that asks often always gets a list that it may keep for a while', TIMEOUT, async (t) => {
  const time = stopTime(t);
  for (const statedMs of [10_000, 35_000]) {
    const caching = { ttlMs: statedMs, cacheScope: 'public' };
    await using upstream = await modernUpstream({ tools: [ECHO], caching });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const ttlMs = async () => Number((await modernResult(gateway.url, 'tools/list'))['ttlMs']);
    await ttlMs();
    const listed = () => upstream.requests('tools/list').length;
    for (let round = 0; round < 40; round++) {
      const before = listed();
      assert.ok((await ttlMs()) > 0, `${statedMs} ms, round ${round}`);
      // A listing goes on in real time after the answer.
      if (listed() > before) await waitUntil(async () => (await ttlMs()) === statedMs);
      time.pass(1_001);
    }
    assert.ok(listed() <= 1 + Math.ceil(40_040 / (0.8 * statedMs)), `${listed()} listings`);
  }
});

// M-011
test('all pages of a list have the same caching, though the upstream changed it', TIMEOUT, async () => {
  const tools = Array.from({ length: 1_500 }, (_, i) => ({ ...ECHO, name: `t${i}` }));
  let cacheScope = 'public';
  await using upstream = await modernUpstream({
    tools,
    answers: { 'tools/list': () => ({ resultType: 'complete', tools, ttlMs: 60_000, cacheScope }) },
  });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const first = await modernResult(gateway.url, 'tools/list');
  assert.equal(first['cacheScope'], 'public');
  const relisted = upstream.requests('tools/list').length;
  cacheScope = 'private';
  upstream.notify('notifications/tools/list_changed');
  await upstream.received.find(({ rpc }) => rpc === 'tools/list' && upstream.requests('tools/list').length > relisted);
  for (;;) {
    const now = await modernResult(gateway.url, 'tools/list');
    if (now['cacheScope'] === 'private') break;
  }
  const second = await modernResult(gateway.url, 'tools/list', { cursor: first['nextCursor'] });
  assert.equal(Array.isArray(second['tools']) && second['tools'].length, 500);
  assert.equal(second['cacheScope'], 'public');
});

// M-004
test('a list is the same on every connection and after every call', TIMEOUT, async () => {
  const done = { 'tools/call': () => ({ content: [] }) };
  await using modern = await modernUpstream({ ...EVERYTHING, answers: done });
  await using legacy = await legacyUpstream({ ...EVERYTHING, answers: done });
  await using gateway = await openGateway({ new: { url: modern.url }, old: { url: legacy.url } });
  const { url } = gateway;
  await modernResult(url, 'tools/list');
  const before = await Promise.all(CACHED.map(async ([method]) => (await modernPost(url, method)).text));
  for (const name of ['new__echo', 'old__echo', 'old__echo']) {
    await modernPost(url, 'tools/call', { name, arguments: {} }, { headers: { connection: 'keep-alive' } });
  }
  const headers = { connection: 'keep-alive' };
  const after = await Promise.all(
    CACHED.map(async ([method]) => (await modernPost(url, method, {}, { headers })).text),
  );
  assert.deepEqual(after, before);
});

// M-022
test('the URI of a tool’s user interface, in both spellings, can be read', TIMEOUT, async () => {
  const uri = 'ui://board/main.html';
  const tool = { ...ECHO, name: 'board', _meta: { ui: { resourceUri: uri }, 'ui/resourceUri': uri } };
  const script: ServerScript = {
    tools: [tool],
    resources: [{ uri, name: 'board' }],
    answers: {
      'resources/read': ({ params }) => ({
        contents: [{ uri: params['uri'], text: `<p>${String(params['uri'])}</p>` }],
      }),
    },
  };
  await using one = await modernUpstream(script);
  await using other = await legacyUpstream(script);
  await using gateway = await openGateway({ one: { url: one.url }, other: { url: other.url } });
  const capabilities = {
    extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } },
  };
  const { tools } = await modernResult(gateway.url, 'tools/list', {}, { capabilities });
  assert.ok(Array.isArray(tools) && tools.length === 2);
  const uris = tools.map(({ _meta }) => [_meta.ui.resourceUri, _meta['ui/resourceUri']]);
  assert.equal(new Set(uris.flat()).size, 2);
  for (const [nested, flat] of uris) {
    assert.equal(nested, flat);
    assert.match(nested, /^ui:\/\//);
    const { contents } = await modernResult(
      gateway.url,
      'resources/read',
      { uri: nested },
      { capabilities, headers: { 'mcp-name': nested } },
    );
    // The content is unchanged.
    assert.deepEqual(contents, [{ uri: nested, text: `<p>${uri}</p>` }]);
  }
  assert.equal(one.requests('resources/read').length, 1);
  assert.equal(other.requests('resources/read').length, 1);
});

// M-024
test('a remote tool with wrong header annotations is left out and logged', TIMEOUT, async () => {
  const mirrored = (header: unknown, more: object = {}) => ({
    type: 'object',
    properties: { a: { type: 'string', 'x-mcp-header': header }, ...more },
  });
  await using upstream = await modernUpstream({
    tools: [
      { name: 'fine', inputSchema: mirrored('Region') },
      { name: 'empty', inputSchema: mirrored('') },
      { name: 'blank', inputSchema: mirrored('My Region') },
      { name: 'twice', inputSchema: mirrored('Region', { b: { type: 'string', 'x-mcp-header': 'region' } }) },
      { name: 'object', inputSchema: { type: 'object', properties: { a: { type: 'object', 'x-mcp-header': 'A' } } } },
      { name: 'plain', inputSchema: { type: 'object' } },
    ],
  });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const { tools } = await modernResult(gateway.url, 'tools/list');
  assert.ok(Array.isArray(tools));
  assert.deepEqual(
    tools.map(({ name }) => name),
    ['up__fine', 'up__plain'],
  );
  // Problems are logged when changes are handed on, shortly after.
  const warnings = () =>
    gateway.lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'left out of the lists');
  await until(() => warnings().length > 0, 'warnings about tools');
  const warned = warnings();
  assert.deepEqual(
    warned.map(({ upstream: id, kind, name }) => [id, kind, name]),
    ['empty', 'blank', 'twice', 'object'].map((name) => ['up', 'tool', name]),
  );
  for (const { why } of warned) assert.match(why, /x-mcp-header/);
  const called = await modernPost(gateway.url, 'tools/call', { name: 'up__blank', arguments: {} });
  assert.equal(answerOf(called).error?.code, -32602);
  assert.equal(upstream.requests('tools/call').length, 0);
});

// M-027
test('unknown _meta passes both ways, and no reserved member is added', TIMEOUT, async () => {
  const meta = {
    'com.example/trail': [1.0, 'x'],
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  };
  const answers: ServerScript['answers'] = {
    'tools/call': ({ params }) => ({
      content: [],
      structuredContent: { received: params['_meta'] },
      _meta: { 'org.example/from': { deep: true } },
    }),
  };
  await using modern = await modernUpstream({ ...EVERYTHING, answers });
  await using legacy = await legacyUpstream({ ...EVERYTHING, answers });
  await using gateway = await openGateway({ new: { url: modern.url }, old: { url: legacy.url } });
  for (const [name, reserved] of [
    ['new__echo', ['clientCapabilities', 'clientInfo', 'protocolVersion']],
    ['old__echo', []],
  ] as const) {
    const result = await modernResult(gateway.url, 'tools/call', { name, arguments: {} }, { meta: meta });
    const { structuredContent, _meta } = JSON.parse(JSON.stringify(result));
    const { received } = structuredContent;
    assert.equal(received['com.example/trail'].length, 2);
    assert.equal(received['traceparent'], meta.traceparent);
    const own = Object.keys(received).filter((key) => key.startsWith(KEY));
    assert.deepEqual(
      own.toSorted(),
      reserved.map((key) => `${KEY}${key}`),
    );
    assert.deepEqual(Object.keys(_meta).toSorted(), [`${KEY}serverInfo`, 'org.example/from']);
    assert.deepEqual(_meta['org.example/from'], { deep: true });
  }
});

for (const resultType of ['partial', 'task', 7]) {
  // M-029
  test(`a result of the undeclared type ${JSON.stringify(resultType)} fails the call`, TIMEOUT, async () => {
    const answers = { 'tools/call': () => ({ resultType, content: [{ type: 'text', text: 'secret' }] }) };
    await using upstream = await modernUpstream({ tools: [ECHO], answers });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const got = await modernPost(gateway.url, 'tools/call', { name: 'up__echo', arguments: {} });
    const { error, result } = answerOf(got);
    assert.equal(result, undefined);
    assert.equal(error?.code, -31012, got.text);
    assert.doesNotMatch(got.text, /secret/);
  });
}

// M-030
test('a result without a type is complete, from upstreams of both eras', TIMEOUT, async () => {
  const answers = { 'tools/call': () => ({ content: [{ type: 'text', text: 'x' }] }) };
  await using modern = await modernUpstream({ tools: [ECHO], answers });
  await using legacy = await legacyUpstream({ tools: [ECHO], answers });
  await using gateway = await openGateway({ new: { url: modern.url }, old: { url: legacy.url } });
  for (const name of ['new__echo', 'old__echo']) {
    const { resultType, content } = await modernResult(gateway.url, 'tools/call', { name, arguments: {} });
    assert.deepEqual([resultType, content], ['complete', [{ type: 'text', text: 'x' }]], name);
  }
});

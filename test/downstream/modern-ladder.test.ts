import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { initialize, post, raw, rpc } from './client.ts';
import { type HttpUpstream, modernUpstream } from '../support/http-upstream.ts';
import {
  answerOf,
  MODERN,
  modernHeaders,
  modernPost,
  modernResult,
  modernText,
  type WireOptions,
} from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const KEY = 'io.modelcontextprotocol/';

const MIRRORED = {
  type: 'object',
  properties: {
    region: { type: 'string', 'x-mcp-header': 'Region' },
    count: { type: 'integer', 'x-mcp-header': 'Count' },
    urgent: { type: 'boolean', 'x-mcp-header': 'Urgent' },
    plain: { type: 'string' },
  },
};

let upstream: HttpUpstream;
let gateway: OpenGateway;
let url = '';

before(async () => {
  upstream = await modernUpstream({
    tools: [
      { name: 'echo', inputSchema: { type: 'object' } },
      { name: 'report', inputSchema: MIRRORED },
      { name: 'needy', inputSchema: { type: 'object' } },
    ],
    prompts: [{ name: 'greet' }],
    resources: [{ uri: 'file:///größe', name: 'a' }],
    answers: {
      'tools/call': (served) => {
        const { params } = served;
        if (params['name'] !== 'needy') {
          return { resultType: 'complete', content: [], structuredContent: { echoed: params['arguments'] } };
        }
        const data = { requiredCapabilities: { elicitation: { form: {} } } };
        served.error(-32021, 'Missing required client capability', data);
        return undefined;
      },
      'prompts/get': () => ({ resultType: 'complete', messages: [] }),
      'resources/read': ({ params }) => ({
        resultType: 'complete',
        contents: [{ uri: params['uri'], text: 'a' }],
        ttlMs: 0,
        cacheScope: 'private',
      }),
    },
  });
  gateway = await openGateway({ up: { url: upstream.url } });
  url = gateway.url;
});

after(async () => {
  await gateway[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

interface Case extends WireOptions {
  readonly name: string;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  /** Default: 200. */
  readonly status?: number;
  readonly code?: number;
}

const base64 = (text: string) => `=?base64?${Buffer.from(text).toString('base64')}?=`;
const call = (args: object = {}) => ({ name: 'up__echo', arguments: args });
const report = (args: object) => ({ name: 'up__report', arguments: args });
const URI = 'up+file:///größe';

const MISMATCH = { status: 400, code: -32020 };
const INCOMPLETE = { status: 400, code: -32602 };
const NOT_THERE = { status: 404, code: -32601 };

const cases: readonly Case[] = [
  // T-003
  { name: 'a request without MCP-Protocol-Version', headers: { 'mcp-protocol-version': undefined }, ...MISMATCH },
  // SEC-22 T-004
  {
    name: 'a header that names another revision than the body',
    headers: { 'mcp-protocol-version': '2025-11-25' },
    ...MISMATCH,
  },
  // T-005
  {
    name: 'a revision that nobody speaks',
    headers: { 'mcp-protocol-version': '2099-01-01' },
    meta: { [`${KEY}protocolVersion`]: '2099-01-01' },
    status: 400,
    code: -32022,
  },
  // T-005
  {
    name: 'a revision of the older era in the envelope',
    headers: { 'mcp-protocol-version': '2025-11-25' },
    meta: { [`${KEY}protocolVersion`]: '2025-11-25' },
    status: 400,
    code: -32022,
  },
  // T-007
  {
    name: 'an envelope without a revision, under a header with one',
    meta: { [`${KEY}protocolVersion`]: undefined },
    ...INCOMPLETE,
  },
  // T-007
  {
    name: 'an envelope without capabilities',
    meta: { [`${KEY}clientCapabilities`]: undefined },
    ...INCOMPLETE,
  },
  // T-007
  { name: 'capabilities that are no object', meta: { [`${KEY}clientCapabilities`]: [] }, ...INCOMPLETE },
  // T-008
  { name: 'a client that does not say who it is', meta: { [`${KEY}clientInfo`]: undefined } },

  // T-009
  { name: 'a request without Mcp-Method', headers: { 'mcp-method': undefined }, ...MISMATCH },
  // SEC-22 T-009
  { name: 'another method in the header', headers: { 'mcp-method': 'tools/list' }, ...MISMATCH },
  // T-009
  { name: 'the method in capitals', headers: { 'mcp-method': 'TOOLS/CALL' }, ...MISMATCH },
  // T-009
  {
    name: 'names of headers in capitals',
    headers: { 'mcp-method': undefined, 'MCP-METHOD': 'tools/call' },
  },

  // T-010
  { name: 'a call without Mcp-Name', headers: { 'mcp-name': undefined }, ...MISMATCH },
  // SEC-22 T-010
  { name: 'a call under another name', headers: { 'mcp-name': 'up__report' }, ...MISMATCH },
  // T-010
  { name: 'white space around the name', headers: { 'mcp-name': '  up__echo\t' } },
  // T-010
  { name: 'a name in base64', headers: { 'mcp-name': base64('up__echo') } },
  // T-010
  { name: 'another name in base64', headers: { 'mcp-name': base64('up__ech0') }, ...MISMATCH },
  // T-010
  {
    name: 'a prompt under another name',
    method: 'prompts/get',
    params: { name: 'up__greet' },
    headers: { 'mcp-name': 'greet' },
    ...MISMATCH,
  },
  // T-010
  { name: 'a prompt under its name', method: 'prompts/get', params: { name: 'up__greet' } },
  // T-010
  {
    name: 'a resource under another URI',
    method: 'resources/read',
    params: { uri: URI },
    headers: { 'mcp-name': base64('up+file:///b') },
    ...MISMATCH,
  },
  // T-010
  {
    name: 'a resource whose URI needs base64',
    method: 'resources/read',
    params: { uri: URI },
    headers: { 'mcp-name': base64(URI) },
  },
  // T-011
  {
    name: 'base64 that is cut short',
    headers: { 'mcp-name': base64('up__echo').replace('=?=', '?=') },
    ...MISMATCH,
  },
  // T-011
  { name: 'base64 with a foreign letter', headers: { 'mcp-name': '=?base64?dXBf*2VjaG8=?=' }, ...MISMATCH },
  // T-011
  {
    name: 'a sentinel in capitals, which is a name like any other',
    headers: { 'mcp-name': base64('up__echo').replace('base64', 'BASE64') },
    ...MISMATCH,
  },

  // T-012
  {
    name: 'arguments said again in headers',
    params: report({ region: 'größe', count: 7, urgent: true, plain: 'x' }),
    headers: { 'mcp-param-region': base64('größe'), 'mcp-param-count': '7', 'mcp-param-urgent': 'true' },
  },
  // T-012
  { name: 'an argument without its header', params: report({ region: 'eu' }), ...MISMATCH },
  // SEC-22 T-012
  {
    name: 'an argument whose header says something else',
    params: report({ region: 'eu' }),
    headers: { 'mcp-param-region': 'us' },
    ...MISMATCH,
  },
  // T-012
  {
    name: 'a header for an argument that is not there',
    params: report({}),
    headers: { 'mcp-param-region': 'eu' },
    ...MISMATCH,
  },
  // T-012
  {
    name: 'a header in broken base64',
    params: report({ region: 'eu' }),
    headers: { 'mcp-param-region': '=?base64?ZXU?=' },
    ...MISMATCH,
  },
  // T-012
  { name: 'null and absent arguments, which have no header', params: report({ region: null }) },
  // T-012
  {
    name: 'an integer that is written in another way',
    params: report({ count: 7 }),
    headers: { 'mcp-param-count': '7.0' },
  },
  // T-012
  {
    name: 'a header that no schema speaks of',
    params: report({ plain: 'x' }),
    headers: { 'mcp-param-plain': 'y' },
  },

  ...[
    'initialize',
    'ping',
    'logging/setLevel',
    'resources/subscribe',
    'resources/unsubscribe',
    'tasks/result',
    'tasks/list',
    'roots/list',
    'no/such/method',
    // T-013
  ].map((method) => ({ name: `${method}, which this era does not have`, method, params: {}, ...NOT_THERE })),

  // T-016
  { name: 'a session id, which means nothing here', headers: { 'mcp-session-id': 'whatever' } },
];

suite('a modern request', () => {
  for (const { name, method = 'tools/call', params = call({ a: 1 }), status = 200, code, ...options } of cases) {
    test(`${name}: ${code === undefined ? 'is served' : `${status} and ${code}`}`, TIMEOUT, async () => {
      const before = upstream.received.items.length;
      const got = await modernPost(url, method, params, { id: 'mine', ...options });
      const { id, error, result } = answerOf(got);
      assert.equal(got.status, status, got.text);
      assert.equal(error?.code, code, got.text);
      assert.equal(id, 'mine');
      if (code === undefined) assert.equal(result?.['resultType'], 'complete');
      // A request refused for its envelope or headers has reached no upstream.
      else
        assert.deepEqual(
          upstream.received.items.slice(before).filter(({ rpc }) => rpc === method),
          [],
        );
    });
  }
});

// T-005 T-006
test('a refused revision comes with those of server/discover', TIMEOUT, async () => {
  const got = await modernPost(
    url,
    'server/discover',
    {},
    {
      headers: { 'mcp-protocol-version': '2099-01-01' },
      meta: { [`${KEY}protocolVersion`]: '2099-01-01' },
    },
  );
  assert.deepEqual(answerOf(got).error?.data, {
    code: 'unsupported-revision',
    supported: [MODERN],
    requested: '2099-01-01',
  });
  const { supportedVersions } = await modernResult(url, 'server/discover');
  assert.deepEqual(supportedVersions, [MODERN]);
});

for (const { name, method, params, uri } of [
  // M-006
  { name: 'a tool that nobody has', method: 'tools/call', params: { name: 'up__nothing', arguments: {} } },
  // M-006
  { name: 'a prompt that nobody has', method: 'prompts/get', params: { name: 'up__nothing' } },
  // M-007
  {
    name: 'a resource that nobody has',
    method: 'resources/read',
    params: { uri: 'x:nothing' },
    uri: 'x:nothing',
  },
  // M-008
  { name: 'a cursor that is not ours', method: 'tools/list', params: { cursor: 'x' } },
]) {
  test(`${name} gets -32602 with status 200`, TIMEOUT, async () => {
    const got = await modernPost(url, method, params);
    const { error } = answerOf(got);
    assert.deepEqual([got.status, error?.code], [200, -32_602], got.text);
    if (uri !== undefined) assert.match(JSON.stringify(error?.data), new RegExp(`"uri":"${uri}"`));
  });
}

// M-005 M-008
test('declared lists can be read, and an empty cursor means the first page', TIMEOUT, async () => {
  const { capabilities } = await modernResult(url, 'server/discover');
  const declared = Object.keys(JSON.parse(JSON.stringify(capabilities)));
  assert.ok(['tools', 'prompts', 'resources'].every((capability) => declared.includes(capability)));
  for (const method of ['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list']) {
    const result = await modernResult(url, method, { cursor: '' });
    assert.deepEqual(result, await modernResult(url, method), method);
  }
  const { resourceTemplates } = await modernResult(url, 'resources/templates/list');
  assert.deepEqual(resourceTemplates, []);
});

for (const [times, status] of [
  [1, 200],
  [2, 400],
] as const) {
  // SEC-22 T-009
  test(`Mcp-Method sent ${times} times is answered ${status}`, TIMEOUT, async () => {
    const { host, port, pathname } = new URL(url);
    const body = modernText('tools/list');
    const headers = { host, accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
    const all = { ...headers, 'content-length': body.length, 'mcp-protocol-version': MODERN };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    const methods = 'Mcp-Method: tools/list\r\n'.repeat(times);
    const answer = await raw(Number(port), `POST ${pathname} HTTP/1.1\r\n${lines.join('')}${methods}\r\n${body}`);
    assert.equal(Number(answer.split(' ', 2)[1]), status);
  });
}

// T-014
test('a call that needs an undeclared capability gets 400 and its name', TIMEOUT, async () => {
  const got = await modernPost(url, 'tools/call', { name: 'up__needy', arguments: {} }, { id: 5 });
  const { id, error } = answerOf(got);
  assert.equal(got.status, 400);
  assert.equal(id, 5);
  assert.equal(error?.code, -32021);
  assert.deepEqual(error.data, { requiredCapabilities: { elicitation: { form: {} } } });
});

for (const [name, method, headers] of [
  ['with the headers of its body', 'notifications/cancelled', { 'mcp-method': 'notifications/cancelled' }],
  ['without headers of its body', 'notifications/cancelled', {}],
  ['that nobody knows', 'notifications/whatever', {}],
] as const) {
  // T-015
  test(`a notification ${name} gets 202 without a body`, TIMEOUT, async () => {
    const _meta = { [`${KEY}protocolVersion`]: MODERN, [`${KEY}clientCapabilities`]: {} };
    const text = JSON.stringify({ jsonrpc: '2.0', method, params: { requestId: 1, _meta } });
    const got = await post(url, text, undefined, { 'mcp-protocol-version': MODERN, ...headers });
    assert.deepEqual([got.status, got.text], [202, '']);
  });
}

for (const [name, body] of [
  ['a response', '{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}'],
  ['an error', '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}'],
  ['an array', `[${modernText('tools/list')}]`],
  ['an empty array', '[]'],
] as const) {
  // T-016
  test(`${name} is no modern request: 400`, TIMEOUT, async () => {
    const got = await post(url, body, undefined, modernHeaders('tools/list'));
    assert.equal(got.status, 400);
    assert.equal(answerOf(got).error?.code, -32600);
  });
}

// T-017
test('no response has a session id, whatever the client sends', TIMEOUT, async () => {
  const session = await initialize(url);
  for (const [method, params] of [
    ['server/discover', {}],
    ['tools/list', {}],
    ['tools/call', call()],
    ['no/such/method', {}],
  ] as const) {
    const headers = { 'mcp-session-id': session, 'last-event-id': '7' };
    const got = await modernPost(url, method, params, { headers });
    assert.equal(got.headers['mcp-session-id'], undefined, method);
    assert.doesNotMatch(got.text, /^id:/m, method);
  }
});

// T-002
test('both eras are served on one path, as the body of each request says', TIMEOUT, async () => {
  const session = await initialize(url);
  const both = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const old = post(url, rpc(index + 1, 'tools/call', call({ era: 'old' })), session);
      const modern = modernPost(url, 'tools/call', call({ era: 'modern' }));
      return [answerOf(await old).result, answerOf(await modern).result];
    }),
  );
  for (const [old, modern] of both) {
    assert.deepEqual(old, { content: [], structuredContent: { echoed: { era: 'old' } } });
    assert.equal(modern?.['resultType'], 'complete');
    assert.deepEqual(modern?.['structuredContent'], { echoed: { era: 'modern' } });
  }
});

// T-002
test('initialize without an envelope opens a session despite a modern header', TIMEOUT, async () => {
  assert.match(await initialize(url, '2025-06-18', { 'mcp-protocol-version': MODERN }), /\S/);
});

// L-018
test('a request refused for its revision gets the supported ones', TIMEOUT, async () => {
  const session = await initialize(url);
  const got = await post(url, rpc(1, 'ping'), session, { 'mcp-protocol-version': '1999-01-01' });
  assert.equal(got.status, 400);
  const data: unknown = answerOf(got).error?.data;
  assert.match(JSON.stringify(data), /"supported":\["2024-11-05","2025-03-26","2025-06-18","2025-11-25"\]/);
});

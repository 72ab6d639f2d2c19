/** Tests requests that a token with more scopes may make: 403 `insufficient_scope`, and what lists show. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ENDPOINT, signingKey, TestIssuer } from '../auth/issuer.ts';
import { BOTH, getEvents, type Got, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type HttpUpstream, legacyUpstream, refuseWith } from '../support/http-upstream.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { askEachWorker } from '../support/workers.ts';
import { startGateway } from '../support/gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const PUBLIC = new URL(ENDPOINT).origin;
const URI = 'up+test://a';

const ACCESS = {
  roles: {
    reader: { upstreams: ['up'], tools: ['*'], readOnly: true },
    writer: { upstreams: ['up'], tools: ['write', 'forge'], prompts: ['ask'], resources: ['test://*'] },
    inbox: { upstreams: ['up'], tools: ['send'], when: 'args.to == "me"' },
    admin: { upstreams: ['up'], tools: ['admin'] },
  },
  grants: [
    { roles: ['reader'], anyone: true },
    { roles: ['writer'], scopes: ['up.write'] },
    { roles: ['inbox'], scopes: ['up.send'] },
    { roles: ['admin'], scopes: ['up.admin'] },
  ],
};

let issuer: TestIssuer;
let upstream: HttpUpstream;
let gateway: OpenGateway;
/** The same gateway without scopes on demand. */
let strict: OpenGateway;

async function open(scopes: readonly unknown[]): Promise<OpenGateway> {
  const { issuer: name, jwksUrl } = issuer;
  const entry = { issuer: name, jwksUrl, audiences: [ENDPOINT], algorithms: ['ES256'], scopesOnDemand: scopes };
  return await openGateway(
    { up: { url: upstream.url } },
    { publicUrl: PUBLIC, legacySse: true, auth: { jwt: [entry] }, access: ACCESS },
  );
}

before(async () => {
  issuer = await TestIssuer.start(await signingKey('ES256', 'one'));
  const tool = (name: string, annotations = {}) => ({ name, inputSchema: { type: 'object' }, annotations });
  upstream = await legacyUpstream({
    tools: [tool('read', { readOnlyHint: true }), ...['write', 'forge', 'send', 'admin'].map((name) => tool(name))],
    prompts: [{ name: 'ask' }],
    resources: [{ uri: 'test://a', name: 'a' }],
    capabilities: { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {} },
    answers: {
      'tools/call': (served) =>
        served.params['name'] === 'forge'
          ? refuseWith({ code: -31029, message: 'no', data: { code: 'insufficient-scope', scopes: ['evil'] } })(served)
          : { content: [] },
      'resources/subscribe': () => ({}),
    },
  });
  gateway = await open(['up.write', { scope: 'up.send', advertised: 'https://up.example/send' }]);
  strict = await open([]);
});

after(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await strict?.[Symbol.asyncDispose]();
  await upstream?.[Symbol.asyncDispose]();
  await issuer?.[Symbol.asyncDispose]();
});

async function as(scope?: string): Promise<{ readonly authorization: string }> {
  return { authorization: `Bearer ${await issuer.token(scope === undefined ? {} : { scope })}` };
}

interface Era {
  readonly era: string;
  /** Returns a function that sends requests of one client. */
  readonly connect: (
    url: string,
  ) => Promise<(method: string, params: object, scope?: string, accept?: string) => Promise<Got>>;
}

const ERAS: readonly Era[] = [
  {
    era: '2025-11-25',
    connect: async (url) => {
      const id = await initialize(url, undefined, await as());
      return async (method, params, scope, accept = BOTH) =>
        await post(url, rpc(1, method, params), id, { ...(await as(scope)), accept });
    },
  },
  {
    era: '2026-07-28',
    connect: (url) =>
      Promise.resolve(
        async (method, params, scope, accept = BOTH) =>
          await modernPost(url, method, { ...params }, { headers: { ...(await as(scope)), accept } }),
      ),
  },
];

const call = (name: string, args = {}) => ({ name: `up__${name}`, arguments: args });
const challengeOf = (scopes: string, path = '/mcp') =>
  `Bearer resource_metadata="${PUBLIC}/.well-known/oauth-protected-resource${path}", error="insufficient_scope", ` +
  `error_description="the request needs a token with these scopes", scope="${scopes}"`;

function assertChallenge(got: Got, scopes: string, path?: string): void {
  assert.deepEqual([got.status, got.headers['www-authenticate']], [403, challengeOf(scopes, path)], got.text);
  assert.equal(got.headers['content-type'], 'application/json');
  const { error } = answerOf(got);
  const data = { code: 'insufficient-scope', executed: 'no', retryable: false, scopes: scopes.split(' ') };
  assert.deepEqual([error?.code, error?.data], [-31029, data]);
}

for (const { era, connect } of ERAS) {
  // P-009
  test(`a request that only lacks a scope gets 403 with the scopes to ask for (${era})`, TIMEOUT, async () => {
    const request = await connect(gateway.url);
    const listed = answerOf(await request('tools/list', {})).result?.['tools'];
    assert.match(JSON.stringify(listed), /up__read.*up__write.*up__send/);
    assert.doesNotMatch(JSON.stringify(listed), /admin/);
    assertChallenge(await request('tools/call', call('write'), 'mcp offline_access'), 'mcp up.write');
    assertChallenge(await request('tools/call', call('write'), 'up.send'), 'https://up.example/send up.write');
    assertChallenge(await request('prompts/get', { name: 'up__ask' }), 'up.write');
    assertChallenge(await request('resources/read', { uri: URI }), 'up.write');
    const ref = { type: 'ref/prompt', name: 'up__ask' };
    assertChallenge(await request('completion/complete', { ref, argument: { name: 'a', value: '' } }), 'up.write');
    assertChallenge(await request('tools/call', call('write'), undefined, 'text/event-stream'), 'up.write');
    const allowed = await request('tools/call', call('write'), 'mcp up.write');
    assert.deepEqual([allowed.status, answerOf(allowed).error], [200, undefined]);
  });

  // P-009
  test(`the arguments decide whether a scope would help (${era})`, TIMEOUT, async () => {
    const request = await connect(gateway.url);
    assertChallenge(await request('tools/call', call('send', { to: 'me' })), 'https://up.example/send');
    const denied = await request('tools/call', call('send', { to: 'you' }));
    assert.equal(denied.status, 200);
    assert.match(denied.text, /Unknown tool: up__send/);
  });

  // P-009
  test(`what no scope on demand allows is unknown, byte for byte (${era})`, TIMEOUT, async () => {
    const request = await connect(gateway.url);
    const without = await connect(strict.url);
    const textOf = async (send: typeof request, name: string) => {
      const { status, headers, text } = await send('tools/call', call(name), 'mcp');
      assert.equal(headers['www-authenticate'], undefined);
      return `${status} ${text.replaceAll(name, 'NAME')}`;
    };
    const unknown = await textOf(request, 'other');
    assert.equal(await textOf(request, 'admin'), unknown);
    assert.equal(await textOf(without, 'admin'), unknown);
    assert.equal(await textOf(without, 'write'), unknown);
  });

  test(`an upstream cannot challenge a client of the gateway (${era})`, TIMEOUT, async () => {
    const request = await connect(gateway.url);
    const got = await request('tools/call', call('forge'), 'up.write');
    assert.equal(answerOf(got).error?.code, -31029);
    assert.deepEqual([got.status, got.headers['www-authenticate']], [200, undefined]);
  });

  test(`the challenge names the metadata of the endpoint that was asked (${era})`, TIMEOUT, async () => {
    const request = await connect(`${gateway.url}/up`);
    assertChallenge(await request('tools/call', { name: 'write', arguments: {} }), 'up.write', '/mcp/up');
  });
}

test('a subscription without the scope gets 403, and one with it is kept', TIMEOUT, async () => {
  const id = await initialize(gateway.url, undefined, await as());
  const subscribe = async (scope?: string) =>
    await post(gateway.url, rpc(1, 'resources/subscribe', { uri: URI }), id, await as(scope));
  assertChallenge(await subscribe(), 'up.write');
  assert.equal((await subscribe('up.write')).status, 200);
});

// P-009
test('a client that gets a scope opens its event stream again, once for each token', TIMEOUT, async () => {
  const [narrow, wide] = [await as('mcp'), await as('mcp up.write')];
  const id = await initialize(gateway.url, undefined, narrow);
  const subscribe = async (token = wide) =>
    (await post(gateway.url, rpc(1, 'resources/subscribe', { uri: URI }), id, token)).status;
  const first = await getEvents(gateway.url, id, narrow);
  assert.equal(await subscribe(narrow), 403);
  assert.equal((await post(gateway.url, rpc(2, 'ping'), id, await as('mcp other'))).status, 200);
  assert.equal(first.isEnded, false);
  assert.equal(await subscribe(), 200);
  await first.ended();
  assert.ok((first.retryMs ?? Infinity) <= 1_000);
  const second = await getEvents(gateway.url, id, { ...narrow, 'last-event-id': first.lastId });
  assert.equal(second.status, 200);
  assert.equal(await subscribe(), 200);
  const third = await getEvents(gateway.url, id, wide);
  await second.ended();
  assert.equal(await subscribe(), 200);
  assert.equal(third.isEnded, false);
  third.close();
});

test('in a batch the error of a request says which scopes it needs', TIMEOUT, async () => {
  const params = { protocolVersion: '2025-03-26', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const opened = await post(gateway.url, rpc(0, 'initialize', params), undefined, await as());
  const id = String(opened.headers['mcp-session-id']);
  const batch = `[${rpc(1, 'tools/call', call('write'))},${rpc(2, 'ping')}]`;
  const got = await post(gateway.url, batch, id, await as('mcp'));
  assert.deepEqual([got.status, got.headers['www-authenticate']], [200, undefined]);
  assert.match(JSON.stringify(messagesOf(got)), /"message":"Insufficient scope: mcp up\.write; sign in again/);
});

test('the challenge comes from whichever worker has the session', TIMEOUT, async () => {
  const { issuer: name, jwksUrl } = issuer;
  const jwt = [
    { issuer: name, jwksUrl, audiences: [ENDPOINT], algorithms: ['ES256'], scopesOnDemand: ['up.write', 'up.send'] },
  ];
  const mcpServers = { up: { type: 'http', url: upstream.url } };
  await using workers = await startGateway({
    mcpServers,
    gateway: { workers: 2, publicUrl: PUBLIC, auth: { jwt }, access: ACCESS },
  });
  const url = workers.endpoint();
  for (const { connect } of ERAS) {
    const request = await connect(url);
    const answers = await askEachWorker(workers, async () => {
      const got = await request('tools/call', call('write'), 'mcp');
      assertChallenge(got, 'mcp up.write');
      return got.text;
    });
    assert.equal(answers.length, 2);
  }
});

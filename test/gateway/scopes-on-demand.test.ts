/** Tests what a client gets, and what is recorded, where a scope is missing that it could get. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/values/config.ts';
import { Session } from '../../src/gateway/clients/session.ts';
import { answerText, readAnswer } from '../../src/gateway/exchange/answer-text.ts';
import { accessOf, tokenOf } from '../policy/policies.ts';
import { openTestAudit } from '../support/audit.ts';
import { type TestCore, testCore, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { oneStreamClient } from '../support/one-stream-client.ts';
import { modernRequest } from '../support/modern-client.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'up+test://a';
const UPDATE = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
const ROLES = {
  all: { upstreams: ['up'], tools: ['get'] },
  writer: { upstreams: ['up'], tools: ['write'], resources: ['test://*'] },
};
const EVERYONE = { roles: ['all'], anyone: true };
const ACCESS = accessOf(ROLES, [EVERYONE, { roles: ['writer'], scopes: ['w'] }]);
/** Two tokens of one principal. */
const [WIDE, NARROW] = [tokenOf('ada', {}, ['mcp', 'w']), tokenOf('ada', {}, ['mcp'])];

function authOf(...scopes: readonly string[]): Config['auth'] {
  const rules = { issuer: 'https://issuer.test', jwksUrl: 'https://issuer.test/jwks', audiences: [], algorithms: [] };
  const scopesOnDemand = scopes.map((scope) => ({ scope, advertised: scope }));
  return { jwt: [{ ...rules, requiredScopes: [], scopesOnDemand }], apiKeys: [] };
}

/** @param refuses says whether the upstream answers a method with an error now. */
function upstream(refuses: (method: string) => boolean = () => false) {
  return memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
    lists: {
      tools: ['get', 'write', 'hold'].map((name) => ({ name, inputSchema: { type: 'object' } })),
      resources: [{ uri: 'test://a', name: 'a' }],
    },
    request: (peer, request) => {
      if (refuses(request.method))
        peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32002,"message":"No"}}`);
      else peer.send(result(request, request.method === 'tools/call' ? { content: [] } : {}));
    },
  });
}

async function place(more: Partial<Config> = {}, memory = upstream()) {
  const gateway = await testCore({ up: { memory } }, { access: ACCESS, auth: authOf('w'), ...more });
  await gateway.core.refresh();
  return { gateway, memory, [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose]() };
}

async function listen(gateway: TestCore, principal: typeof WIDE) {
  const notifications = { toolsListChanged: true, resourceSubscriptions: [URI] };
  const stream = modernRequest(gateway, 'subscriptions/listen', { notifications }, { principal });
  const isAcknowledged = () => JSON.stringify(stream.messages).includes('/acknowledged');
  await waitUntil(isAcknowledged);
  return stream;
}

// P-009
test('a stream of updates has what its own token allows, whatever is listed', TIMEOUT, async () => {
  await using at = await place();
  const { gateway } = at;
  const client = await gateway.connect({ principal: NARROW });
  client.notify('notifications/initialized');
  const sink = client.sink(client.listened);
  client.session.setSink(sink, NARROW);
  const subscribe = async () =>
    (await client.request('resources/subscribe', { uri: URI }, { principal: WIDE })).answer.kind;
  assert.equal(await subscribe(), 'result');
  const [wide, narrow] = [await listen(gateway, WIDE), await listen(gateway, NARROW)];
  const acknowledged = [wide, narrow].map(({ messages: [first] }) => {
    return first !== undefined && 'params' in first && String(first.params).includes(URI);
  });
  assert.deepEqual(acknowledged, [true, false]);
  for (const peer of at.memory.open) peer.send(UPDATE);
  await waitUntil(() => JSON.stringify(wide.messages).includes('resources/updated'));
  const methods = [...client.listened, ...narrow.messages].map((one) => ('method' in one ? one.method : ''));
  assert.ok(!methods.includes('notifications/resources/updated'), String(methods));
  client.session.setSink(sink, WIDE);
  assert.equal(await subscribe(), 'result');
  for (const peer of at.memory.open) peer.send(UPDATE);
  await client.waitForMessage('notifications/resources/updated');
  for (const stream of [wide, narrow]) stream.call.close();
  await Promise.all([wide.reply, narrow.reply]);
});

// P-009
test('a request that lacks a scope is challenged before messages that wait are sent', TIMEOUT, async () => {
  await using at = await place();
  const client = await at.gateway.connect({ principal: NARROW, listens: false });
  const { session } = client;
  const sink = client.sink(client.listened);
  session.setSink(sink, NARROW);
  session.removeSink(sink);
  Session.from(session).announce('notifications/tools/list_changed', undefined);
  const refused = await client.request('tools/call', toolCall('up__write'));
  assert.ok(refused.answer.kind === 'error' && refused.answer.scopes !== undefined);
  const answered = await client.request('ping');
  assert.deepEqual([refused.messages.length, answered.messages.length], [0, 1]);
});

// P-009
test('a session with further scopes keeps what it subscribes to without a stream', TIMEOUT, async () => {
  await using at = await place();
  const client = await at.gateway.connect({ principal: NARROW, listens: false });
  const { session } = client;
  const sink = { ...client.sink(client.listened), interrupt: () => session.removeSink(sink) };
  session.setSink(sink, NARROW);
  await at.gateway.core.gateway.findSession(session.id, WIDE, '');
  const { answer } = await client.request('resources/subscribe', { uri: URI }, { principal: WIDE });
  assert.equal(answer.kind, 'result');
  for (const peer of at.memory.open) peer.send(UPDATE);
  session.setSink(sink, WIDE);
  await client.waitForMessage('notifications/resources/updated');
});

// P-009
test('a token with a scope on demand ends a stream once a minute, however it is read', TIMEOUT, async (t) => {
  await using at = await place({ auth: authOf('w', 'v') });
  const reader = tokenOf('ada', {}, ['mcp', 'offline_access']);
  const client = await at.gateway.connect({ principal: reader, listens: false });
  const { session } = client;
  let interrupts = 0;
  const sink = { ...client.sink(client.listened), interrupt: () => interrupts++ };
  session.setSink(sink, reader);
  const ask = async (...scopes: readonly string[]) => {
    await at.gateway.core.gateway.findSession(session.id, tokenOf('ada', {}, scopes), '');
    return interrupts;
  };
  assert.equal(await ask('mcp'), 0, 'no further scope');
  assert.equal(await ask('mcp', 'v'), 0, 'the same rights');
  assert.equal(await ask('mcp', 'w'), 1, 'a token of a step-up need not have every scope of before');
  assert.equal(await ask('w', 'mcp'), 1, 'the same token, read by another process');
  assert.equal(await ask('mcp', 'v', 'w'), 2);
  assert.equal(await ask('mcp', 'w'), 2, 'each token once');
  const later = performance.now() + 60_000; // subject
  t.mock.method(performance, 'now', () => later);
  assert.equal(await ask('mcp', 'w'), 3, 'such as another step-up, after a new sign-in');
  session.setSink(sink, WIDE);
  assert.equal(await ask('mcp', 'v'), 3, 'its further scope gives nothing');
});

// P-009
test('a restored session subscribes only to what its own token allows', TIMEOUT, async () => {
  await using at = await place();
  const { gateway, memory } = at;
  const client = await gateway.connect({ principal: WIDE });
  assert.equal((await client.request('resources/subscribe', { uri: URI })).answer.kind, 'result');
  for (const [principal, expected] of [
    [NARROW, []],
    [WIDE, [URI]],
  ] as const) {
    await gateway.restart();
    await gateway.core.refresh();
    const before = memory.requests('resources/subscribe').length;
    assert.ok((await gateway.core.gateway.findSession(client.session.id, principal, '')) !== undefined);
    const [session] = [...gateway.core.sessions];
    assert.deepEqual([...(session?.subscriptions.keys() ?? [])], expected);
    if (expected.length > 0) await memory.until(() => memory.requests('resources/subscribe')[before]);
  }
  assert.equal(memory.requests('resources/subscribe').length, 2);
});

for (const onDemand of [[], ['w']]) {
  const name = `what a narrower token ends is restored by a wider one (${onDemand.length} scopes on demand)`;
  // P-009
  test(name, TIMEOUT, async () => {
    for (const isRestarted of [
      [false, false],
      [false, true],
      [true, true],
    ] as const) {
      await using at = await place({ auth: authOf(...onDemand) });
      const { gateway, memory } = at;
      const client = await gateway.connect({ principal: WIDE, listens: false });
      assert.equal((await client.request('resources/subscribe', { uri: URI })).answer.kind, 'result');
      for (const [step, principal, expected] of [
        [0, NARROW, []],
        [1, WIDE, [URI]],
      ] as const) {
        if (isRestarted[step]) {
          await gateway.restart();
          await gateway.core.refresh();
        }
        await gateway.core.gateway.findSession(client.session.id, principal, '');
        const [session] = [...gateway.core.sessions];
        assert.deepEqual([...(session?.subscriptions.keys() ?? [])], expected, `restarted: ${String(isRestarted)}`);
      }
      await memory.until(() => memory.requests('resources/subscribe')[1]);
    }
  });
}

// P-009 P-011
test('a subscription comes back with the right to it, whatever has ended it', TIMEOUT, async () => {
  await using at = await place();
  const { gateway } = at;
  const client = await gateway.connect({ principal: WIDE, listens: false });
  const { session } = client;
  const sink = client.sink(client.listened);
  session.setSink(sink, NARROW);
  const subscribed = () => [...gateway.core.sessions].flatMap(({ subscriptions }) => [...subscriptions.keys()]);
  assert.equal((await client.request('resources/subscribe', { uri: URI }, { principal: WIDE })).answer.kind, 'result');
  assert.deepEqual(subscribed(), [URI]);
  await gateway.reload({ instructions: { maxChars: 3_000 } });
  assert.deepEqual(subscribed(), [], 'the stream has a narrower token');
  await gateway.reload({ access: accessOf(ROLES, [EVERYONE]) });
  session.setSink(sink, WIDE);
  assert.deepEqual(subscribed(), [], 'a reload has taken the right');
  await gateway.reload({ access: accessOf({ ...ROLES, more: {} }, ACCESS.grants) });
  assert.deepEqual(subscribed(), [URI]);
  await gateway.restart();
  await gateway.core.refresh();
  await gateway.core.gateway.findSession(session.id, WIDE, '');
  assert.deepEqual(subscribed(), [URI], 'it is stored');
});

// P-009
test('a subscription that a narrower token has ended can be ended for good with it', TIMEOUT, async () => {
  await using at = await place({ auth: authOf() });
  const { gateway } = at;
  const client = await gateway.connect({ principal: WIDE, listens: false });
  const kindOf = async (method: string, principal: typeof WIDE) =>
    (await client.request(method, { uri: URI }, { principal })).answer.kind;
  assert.equal(await kindOf('resources/subscribe', WIDE), 'result');
  await gateway.core.gateway.findSession(client.session.id, NARROW, '');
  assert.equal(await kindOf('resources/unsubscribe', NARROW), 'result');
  for (const restarts of [false, true]) {
    if (restarts) await gateway.restart();
    await gateway.core.refresh();
    await gateway.core.gateway.findSession(client.session.id, WIDE, '');
    const [session] = [...gateway.core.sessions];
    assert.deepEqual([...(session?.subscriptions.keys() ?? [])], []);
  }
});

// P-009 N-23
test('a subscription that waits for a wider token ends if its upstream refuses it', TIMEOUT, async () => {
  let refused = '';
  await using at = await place(
    {},
    upstream((method) => method === refused),
  );
  const client = await at.gateway.connect({ principal: WIDE, listens: false });
  const sink = client.sink(client.listened);
  const subscribe = async () =>
    (await client.request('resources/subscribe', { uri: URI }, { principal: WIDE })).answer.kind;
  assert.equal(await subscribe(), 'result');
  client.session.setSink(sink, NARROW);
  refused = 'resources/subscribe';
  assert.equal(await subscribe(), 'error');
  client.session.setSink(sink, WIDE);
  const [session] = [...at.gateway.core.sessions];
  assert.deepEqual([...(session?.subscriptions.keys() ?? [])], []);
});

// P-009
test('a resource that only scopes would open makes no other one ambiguous', TIMEOUT, async () => {
  const served = () =>
    memoryUpstream({
      capabilities: { resources: {}, completions: {} },
      lists: {
        resources: [{ uri: 'test://a', name: 'a' }],
        resourceTemplates: [{ uriTemplate: 'test://x/{n}', name: 'x' }],
      },
      request: (peer, request) =>
        peer.send(
          result(request, request.method === 'resources/read' ? { contents: [] } : { completion: { values: [] } }),
        ),
    });
  const [mine, later] = [served(), served()];
  const roles = { mine: { upstreams: ['mine'] }, later: { upstreams: ['later'] } };
  const access = accessOf(roles, [
    { ...EVERYONE, roles: ['mine'] },
    { roles: ['later'], scopes: ['w'] },
  ]);
  const config = { access, auth: authOf('w') };
  await using gateway = await testCore({ later: { memory: later }, mine: { memory: mine } }, config);
  await gateway.core.refresh();
  const ask = async (principal: typeof WIDE) => {
    const client = await gateway.connect({ principal });
    const ref = { type: 'ref/resource', uri: 'test://x/{n}' };
    const completion = client.request('completion/complete', { ref, argument: { name: 'n', value: '' } });
    const read = client.request('resources/read', { uri: 'test://a' });
    return (await Promise.all([read, completion])).map(({ answer }) => answer.kind);
  };
  assert.deepEqual(await ask(NARROW), ['result', 'result']);
  assert.deepEqual(await ask(WIDE), ['error', 'error']);
  assert.equal(later.requests('resources/read').length + later.requests('completion/complete').length, 0);
});

// P-009
test('a usable template serves a URI that only scopes would open elsewhere', TIMEOUT, async () => {
  const served = (lists: object) =>
    memoryUpstream({
      capabilities: { resources: {} },
      lists,
      request: (peer, request) => peer.send(result(request, { contents: [] })),
    });
  const [mine, later] = [
    served({ resourceTemplates: [{ uriTemplate: 'test://{n}', name: 'mine' }] }),
    served({ resources: [{ uri: 'test://a', name: 'a' }] }),
  ];
  const roles = { mine: { upstreams: ['mine'] }, later: { upstreams: ['later'] } };
  for (const onDemand of [['w'], []]) {
    const access = accessOf(roles, [
      { ...EVERYONE, roles: ['mine'] },
      { roles: ['later'], scopes: ['w'] },
    ]);
    const config = { access, auth: authOf(...onDemand) };
    await using gateway = await testCore({ later: { memory: later }, mine: { memory: mine } }, config);
    await gateway.core.refresh();
    for (const [principal, from] of [
      [NARROW, mine],
      [WIDE, later],
    ] as const) {
      const before = from.requests('resources/read').length;
      const client = await gateway.connect({ principal });
      const { answer } = await client.request('resources/read', { uri: 'test://a' });
      assert.equal(answer.kind, 'result', JSON.stringify(answer));
      assert.equal(from.requests('resources/read').length, before + 1);
    }
  }
});

test('a listed raw URI that only a scope opens is not read from another upstream', TIMEOUT, async () => {
  const served = (lists: object) =>
    memoryUpstream({
      capabilities: { resources: { subscribe: true } },
      lists,
      request: (peer, request) => peer.send(result(request, { contents: [] })),
    });
  const methods = ['resources/read', 'resources/subscribe'];
  const listed = { resources: [{ uri: 'test://a', name: 'a' }] };
  const roles = { mine: { upstreams: ['mine'] }, later: { upstreams: ['later'] } };
  const access = accessOf(roles, [
    { ...EVERYONE, roles: ['mine'] },
    { roles: ['later'], scopes: ['w'] },
  ]);
  for (const own of [{ resourceTemplates: [{ uriTemplate: 'test://{n}', name: 'mine' }] }, listed]) {
    const [mine, later] = [served(own), served(listed)];
    const upstreams = { later: { memory: later, prefix: '', rawUris: true }, mine: { memory: mine } };
    await using gateway = await testCore(upstreams, { access, auth: authOf('w') });
    await gateway.core.refresh();
    const ask = async (principal: typeof WIDE) => {
      const client = await gateway.connect({ principal });
      const asked = methods.map((method) => client.request(method, { uri: 'test://a' }, { principal }));
      return (await Promise.all(asked)).map(({ answer }) => answer);
    };
    for (const answer of await ask(NARROW)) {
      assert.ok(answer.kind === 'error', JSON.stringify(answer));
      assert.deepEqual(answer.scopes, ['mcp', 'w']);
    }
    for (const answer of await ask(WIDE)) assert.equal(answer.kind, 'result', JSON.stringify(answer));
    for (const method of methods)
      assert.deepEqual([mine.requests(method).length, later.requests(method).length], [0, 1], method);
  }
});

// P-009
test('a stream asks nothing of an upstream that its token may not use yet', TIMEOUT, async () => {
  const memory = upstream();
  const access = accessOf({ later: { upstreams: ['up'] } }, [{ roles: ['later'], scopes: ['w'] }]);
  const up = { memory, era: 'auto', target: { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } } as const;
  const processes = new JoinedProcesses();
  const asked: string[] = [];
  const joined = processes.join();
  processes.join = () => ({ ...joined, ownerOf: (owned) => (asked.push(owned.kind), joined.ownerOf(owned)) });
  await using gateway = await testCore({ up }, { access, auth: authOf('w') }, processes);
  for (const [principal, expected] of [
    [NARROW, []],
    [WIDE, ['connection']],
  ] as const) {
    const notifications = { resourceSubscriptions: [URI] };
    const stream = modernRequest(gateway, 'subscriptions/listen', { notifications }, { principal });
    await waitUntil(() => stream.messages.length > 0);
    assert.deepEqual(asked, expected);
    stream.call.close();
    await stream.reply;
  }
});

// P-009 P-011
test('a reload that leaves a right to a scope ends subscriptions, and changes no list', TIMEOUT, async () => {
  await using at = await place({ access: accessOf(ROLES, [EVERYONE, { ...EVERYONE, roles: ['writer'] }]) });
  const { gateway } = at;
  const client = await gateway.connect({ principal: NARROW });
  client.notify('notifications/initialized');
  assert.equal((await client.request('resources/subscribe', { uri: URI })).answer.kind, 'result');
  const stream = await listen(gateway, NARROW);
  await gateway.reload({ access: ACCESS });
  await stream.reply;
  for (const peer of at.memory.open) peer.send(UPDATE);
  const { answer } = await client.request('tools/call', toolCall('up__write'));
  assert.ok(answer.kind === 'error');
  assert.deepEqual(answer.scopes, ['mcp', 'w']);
  assert.deepEqual(client.listened, []);
});

// P-011
test('a reload of the scopes on demand announces what lists show now', TIMEOUT, async () => {
  await using at = await place({ auth: authOf() });
  const client = await at.gateway.connect({ principal: NARROW });
  client.notify('notifications/initialized');
  const names = async () => /up__write/.test(JSON.stringify((await client.request('tools/list', {})).answer));
  assert.equal(await names(), false);
  await at.gateway.reload({ auth: authOf('w') });
  await client.waitForMessage('notifications/tools/list_changed');
  assert.equal(await names(), true);
});

// P-009
test('the audit log and the metrics have a denial with the scope that would change it', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const config = { access: ACCESS, auth: authOf('w') };
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, config, undefined, audit.trail);
    await gateway.core.refresh();
    const client = await gateway.connect({ principal: NARROW });
    await client.request('tools/call', toolCall('up__write'));
    await client.request('tools/call', toolCall('up__hold'));
    const text = await gateway.metrics.text();
    assert.match(text, /linkspan_access_denied_total\{[^}]*upstream="up"[^}]*\} 2/);
    assert.match(text, /insufficient-scope/);
  }
  const records = await audit.records();
  const denials = records.flatMap(({ decision, name, error, reason }) =>
    decision === 'denied' ? [[name, error, reason]] : [],
  );
  assert.deepEqual(denials, [
    ['up__write', 'insufficient-scope', 'scope "w" would allow it'],
    ['up__hold', 'unknown-tool', undefined],
  ]);
});

test('a client with one stream reads in the error which scopes it needs', TIMEOUT, async () => {
  await using at = await place();
  const client = oneStreamClient(at.gateway, NARROW);
  const { sent } = client;
  await client.initialize(NARROW);
  await client.request(1, 'tools/call', toolCall('up__write'), NARROW);
  assert.deepEqual(JSON.parse(sent[1] ?? '').error, {
    code: -31029,
    message: 'Insufficient scope: mcp w; sign in again with these scopes',
    data: { code: 'insufficient-scope', executed: 'no', retryable: false, scopes: ['mcp', 'w'] },
  });
  await client.close();
});

test('the scopes of an answer come along from another process', () => {
  const error = { code: -31029, message: 'no', data: { code: 'insufficient-scope' } };
  for (const answer of [{ kind: 'error', error, scopes: ['w'] } as const, { kind: 'error', error } as const]) {
    assert.deepEqual(readAnswer(JSON.parse(answerText(answer)))?.answer, answer);
  }
});

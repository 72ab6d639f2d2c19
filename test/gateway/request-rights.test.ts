/** Tests that each request, and each stream, is judged by the rights of its own credentials. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/values/config.ts';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { accessOf, tokenOf } from '../policy/policies.ts';
import { type TestClient, type TestCore, testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { oneStreamClient } from '../support/one-stream-client.ts';
import { modernRequest, type ModernRequest } from '../support/modern-client.ts';
import { lockOf } from '../support/pins.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { inputSchema: { type: 'object' } };
const CLAIMS = { claims: [{ name: 'groups', path: 'groups', type: 'list' } as const], groupClaims: ['groups'] };
const ROLES = {
  all: { upstreams: ['up'], tools: ['get'] },
  eng: { upstreams: ['up'], tools: ['write'], resources: ['test://*'] },
};
const ACCESS = accessOf(
  ROLES,
  [
    { roles: ['all'], anyone: true },
    { roles: ['eng'], groups: ['eng'] },
  ],
  CLAIMS,
);
/** Two tokens of one principal. */
const [WIDE, NARROW] = [tokenOf('ada', { groups: ['eng'] }), tokenOf('ada', { groups: [] })];
const URI = 'up+test://a';
const SUBSCRIBED = 'notifications/subscriptions/acknowledged';

const LISTS = {
  tools: ['get', 'write', 'hold'].map((name) => ({ name, ...TOOL })),
  resources: [{ uri: 'test://a', name: 'a' }],
};

function upstream() {
  return memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true }, logging: {} },
    lists: LISTS,
    request: (peer, request) => peer.send(result(request, request.method === 'tools/call' ? { content: [] } : {})),
  });
}

async function place(more: Partial<Config> = {}) {
  const memory = upstream();
  const gateway = await testCore({ up: { memory } }, { access: ACCESS, ...more });
  await gateway.core.refresh();
  return { gateway, memory, [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose]() };
}

async function toolsOf(client: TestClient, principal = WIDE): Promise<readonly unknown[]> {
  const { answer } = await client.request('tools/list', {}, { principal });
  assert.ok(answer.kind === 'result');
  const { tools }: { tools: readonly { name: string }[] } = JSON.parse(answer.result);
  return tools.map(({ name }) => name);
}

function methods(messages: readonly Message[]): readonly string[] {
  return messages.flatMap((one) => ('method' in one ? [one.method] : []));
}

test('a reload that gives a session equal rights keeps its waiting messages', TIMEOUT, async () => {
  for (const isEqual of [true, false]) {
    await using at = await place();
    const { gateway, memory } = at;
    const client = await gateway.connect({ principal: WIDE, listens: false });
    const other = await gateway.connect({ principal: WIDE });
    for (const one of [client, other]) {
      one.notify('notifications/initialized');
      assert.equal((await one.request('resources/subscribe', { uri: URI })).answer.kind, 'result');
    }
    const update = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
    for (const peer of memory.open) peer.send(update);
    // The update for the first session is announced before that.
    await other.waitForMessage('notifications/resources/updated');
    const tools = isEqual ? ROLES.eng.tools : ['get'];
    const roles = { all: ROLES.all, renamed: { ...ROLES.eng, tools } };
    const grants = [
      { roles: ['all'], anyone: true },
      { roles: ['renamed'], groups: ['eng'] },
    ];
    await gateway.reload({ access: accessOf(roles, grants, CLAIMS) });
    client.session.setSink(client.sink(client.listened), WIDE);
    const isKept = methods(client.listened).includes('notifications/resources/updated');
    assert.equal(isKept, isEqual);
  }
});

// SEC-08
test('two tokens in one session at once each have their own lists and calls', TIMEOUT, async () => {
  await using at = await place();
  const client = await at.gateway.connect({ principal: WIDE });
  for (const latest of [NARROW, WIDE]) {
    await at.gateway.core.gateway.findSession(client.session.id, latest, '');
    const lists = await Promise.all([toolsOf(client, WIDE), toolsOf(client, NARROW)]);
    assert.deepEqual(lists, [['up__get', 'up__write'], ['up__get']]);
    const call = async (principal: typeof WIDE) =>
      (await client.request('tools/call', toolCall('up__write'), { principal })).answer.kind;
    assert.deepEqual(await Promise.all([call(WIDE), call(NARROW)]), ['result', 'error']);
    const subscribe = async (principal: typeof WIDE) =>
      (await client.request('resources/subscribe', { uri: URI }, { principal })).answer.kind;
    assert.deepEqual([await subscribe(NARROW), await subscribe(WIDE)], ['error', 'result']);
    await client.request('resources/unsubscribe', { uri: URI }, { principal: WIDE });
  }
});

// SEC-08 SEC-33
test('a token calls by its own rights at a pinned upstream, whichever came last', TIMEOUT, async () => {
  await using at = await place({ lock: lockOf({ up: LISTS }, 'quarantine') });
  const client = await at.gateway.connect({ principal: WIDE });
  for (const latest of [NARROW, WIDE]) {
    await at.gateway.core.gateway.findSession(client.session.id, latest, '');
    const call = async (principal: typeof WIDE) =>
      (await client.request('tools/call', toolCall('up__write'), { principal })).answer.kind;
    assert.deepEqual([await call(WIDE), await call(NARROW)], ['result', 'error']);
  }
});

test('each request of a session is counted for the rates of its own token', TIMEOUT, async () => {
  const to = { anyone: false, keys: undefined, groups: undefined, scopes: undefined, subjects: undefined };
  const subjects = { ...to, issuers: undefined, clients: undefined, claims: { groups: ['eng'] } };
  const scope = { endpoints: undefined, upstreams: undefined, tools: undefined, per: 'principal' } as const;
  await using at = await place({ rates: [{ name: 'r', to: subjects, ...scope, limit: 1, windowMs: 600_000 }] });
  const client = await at.gateway.connect({ principal: NARROW });
  const call = async (principal: typeof WIDE) =>
    (await client.request('tools/call', toolCall('up__get'), { principal })).answer.kind;
  const kinds = [];
  for (const principal of [NARROW, WIDE, NARROW, WIDE, NARROW]) kinds.push(await call(principal));
  assert.deepEqual(kinds, ['result', 'result', 'result', 'error', 'result']);
});

// SEC-08
test('an event stream has the rights of the token that opened it', TIMEOUT, async () => {
  await using at = await place();
  const client = await at.gateway.connect({ principal: NARROW });
  client.notify('notifications/initialized');
  const sink = client.sink(client.listened);
  client.session.setSink(sink, NARROW);
  assert.equal((await client.request('resources/subscribe', { uri: URI }, { principal: WIDE })).answer.kind, 'result');
  await at.gateway.core.gateway.findSession(client.session.id, WIDE, '');
  const update = '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}';
  for (const peer of at.memory.open) peer.send(update);
  // The update of the other stream comes after it.
  assert.deepEqual(await toolsOf(client, WIDE), ['up__get', 'up__write']);
  assert.deepEqual(methods(client.listened), []);
  client.session.setSink(sink, WIDE);
  assert.equal((await client.request('resources/subscribe', { uri: URI }, { principal: WIDE })).answer.kind, 'result');
  for (const peer of at.memory.open) peer.send(update);
  await client.waitForMessage('notifications/resources/updated');
});

// SEC-08
test('what waits for a stream is dropped when the rights become others', TIMEOUT, async () => {
  await using at = await place();
  const client = await at.gateway.connect({ principal: WIDE, listens: false });
  client.notify('notifications/initialized');
  await client.request('resources/subscribe', { uri: URI }, { principal: WIDE });
  const other = await at.gateway.connect({ principal: WIDE });
  await other.request('resources/subscribe', { uri: URI });
  for (const peer of at.memory.open) {
    peer.send('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}');
  }
  // The update for the first session is announced before that.
  await other.waitForMessage('notifications/resources/updated');
  client.session.setSink(client.sink(client.listened), NARROW);
  await client.waitForMessage('notifications/tools/list_changed');
  assert.ok(!methods(client.listened).includes('notifications/resources/updated'));
});

// SEC-08
test('an input during initialize sets the rights of a client with one stream', TIMEOUT, async () => {
  await using at = await place();
  const client = oneStreamClient(at.gateway, WIDE);
  const { sent } = client;
  const opening = client.initialize(WIDE);
  const listing = client.request(1, 'tools/list', undefined, NARROW);
  await Promise.all([opening, listing]);
  assert.doesNotMatch(sent.join(''), /up__write/);
  const [session] = [...at.gateway.core.sessions];
  assert.equal(session?.caller.principal, NARROW);
  await Promise.all([
    client.request(2, 'tools/list', undefined, WIDE),
    client.request(3, 'tools/list', undefined, NARROW),
  ]);
  const named = sent.map((text) => [JSON.parse(text).id, /up__write/.test(text)]);
  assert.deepEqual(
    named.toSorted(([a], [b]) => a - b),
    [
      [0, false],
      [1, false],
      [2, true],
      [3, false],
    ],
  );
  await client.close();
});

/** Opens a subscription stream, and resolves when it is acknowledged. */
async function listen(gateway: TestCore, principal: typeof WIDE) {
  const notifications = { toolsListChanged: true, resourceSubscriptions: [URI] };
  const stream: ModernRequest & { isEnded: boolean } = {
    ...modernRequest(gateway, 'subscriptions/listen', { notifications }, { principal }),
    isEnded: false,
  };
  void stream.reply.then(() => (stream.isEnded = true));
  await waitUntil(() => methods(stream.messages).includes(SUBSCRIBED));
  return stream;
}

// P-011
test('a reload ends the stream whose rights change, and leaves the others', TIMEOUT, async () => {
  await using at = await place();
  const { gateway } = at;
  const [wide, narrow] = [await listen(gateway, WIDE), await listen(gateway, NARROW)];
  // The same roles, of which one loses the resource. The other one has another place and name only.
  const { resources: _, ...eng } = ROLES.eng;
  const moved = accessOf(
    { common: ROLES.all, eng },
    [
      { roles: ['common'], anyone: true },
      { roles: ['eng'], groups: ['eng'] },
    ],
    CLAIMS,
  );
  await gateway.reload({ access: moved });
  await wide.reply;
  assert.equal(narrow.isEnded, false);
  const again = await listen(gateway, WIDE);
  const acknowledged = again.messages.find((one) => 'method' in one && one.method === SUBSCRIBED);
  assert.ok(!JSON.stringify(acknowledged).includes('resourceSubscriptions'), 'the client sees what it has lost');
  for (const stream of [narrow, again]) stream.call.close();
  await Promise.all([narrow.reply, again.reply]);
});

// SEC-08
test('a reload ends subscription streams that have other rights than their group', TIMEOUT, async () => {
  const everyone = accessOf(ROLES, [{ roles: ['all', 'eng'], anyone: true }], CLAIMS);
  await using at = await place({ access: everyone });
  const { gateway } = at;
  // With equal rights both are in one group.
  const [wide, narrow] = [await listen(gateway, WIDE), await listen(gateway, NARROW)];
  await gateway.reload({ access: ACCESS });
  await narrow.reply;
  assert.equal(wide.isEnded, false);
  for (const peer of at.memory.open) {
    peer.send('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}');
  }
  await waitUntil(() => methods(wide.messages).includes('notifications/resources/updated'));
  assert.ok(!methods(narrow.messages).includes('notifications/resources/updated'));
  wide.call.close();
  await wide.reply;
});

// SEC-08
test('a stream that waits for lists during a reload ends if its group has other rights', TIMEOUT, async () => {
  const everyone = accessOf(ROLES, [{ roles: ['all', 'eng'], anyone: true }], CLAIMS);
  const released = Promise.withResolvers<void>();
  const slow = memoryUpstream({ lists: { tools: [] }, hold: () => released.promise });
  const memory = upstream();
  await using gateway = await testCore({ up: { memory }, slow: { memory: slow } }, { access: everyone });
  const open = (principal = WIDE) =>
    modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: [URI] } }, { principal });
  const first = open();
  await slow.until(() => slow.requests('tools/list')[0]);
  const narrow = open(NARROW);
  await gateway.reload({ access: ACCESS });
  released.resolve();
  await narrow.reply;
  await waitUntil(() => methods(first.messages).includes(SUBSCRIBED));
  const isSubscribed = ({ messages }: ModernRequest) =>
    messages.some((one) => 'method' in one && one.params?.toString().includes(URI));
  assert.deepEqual([isSubscribed(first), isSubscribed(narrow)], [true, false]);
  first.call.close();
  await first.reply;
});

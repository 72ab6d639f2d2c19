import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RateConfig, RepeatsConfig } from '../../../src/config/values/config.ts';
import type { PrincipalSelector } from '../../../src/policy/principal-selector.ts';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { RepeatedCalls } from '../../../src/gateway/calls/repeated-calls.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import type { Principal } from '../../../src/policy/principal.ts';
import { accepted, asker } from '../../support/asker.ts';
import { openTestAudit } from '../../support/audit.ts';
import { accessOf, ANYONE } from '../../policy/policies.ts';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { legacyUpstream, modernUpstream, type Served } from '../../support/http-upstream.ts';
import { type MemoryUpstream, memoryUpstream, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { coreTaskUpstream } from '../../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };
const MINUTE_MS = 60_000;
const principal = (name: string, more: Partial<Principal> = {}): Principal => ({
  key: `key:${name}`,
  label: name,
  keyName: name,
  scopes: [],
  ...more,
});
const [ANN, BOB] = [principal('ann'), principal('bob')];

function rate(limit: number, more: Partial<RateConfig> = {}): RateConfig {
  const all = { to: ANYONE, endpoints: undefined, upstreams: undefined, tools: undefined, per: 'principal' } as const;
  return { name: 'r', ...all, limit, windowMs: MINUTE_MS, ...more };
}

function repeats(limit: number, exceptTools: readonly string[] = []): RepeatsConfig {
  return { limit, windowMs: MINUTE_MS, tools: ['*'], exceptTools };
}

/** An upstream whose tools answer at once, except `waits`. */
function upstream(): MemoryUpstream {
  return memoryUpstream({
    lists: { tools: ['echo', 'other', 'waits'].map((name) => ({ name, inputSchema: { type: 'object' } })) },
    request: (peer, request) => {
      if (request.params?.string('name') !== 'waits') peer.send(result(request, { content: [] }));
    },
  });
}

/** Calls a tool. Returns `ok`, or the members of the error that clients read. */
async function call(client: TestClient, name: string, args: object = {}): Promise<unknown> {
  const { answer } = await client.request('tools/call', toolCall(name, args));
  return answer.kind === 'result' ? 'ok' : answer.error.data;
}

/** Calls a tool this often. Returns how many calls were made. */
async function callsMade(client: TestClient, name: string, times: number, args = (n: number): object => ({ n })) {
  let made = 0;
  for (let n = 0; n < times; n++) if ((await call(client, name, args(n))) === 'ok') made++;
  return made;
}

test('a principal beyond its rate is refused, in words and with the time to wait', TIMEOUT, async () => {
  const memory = upstream();
  await using gateway = await testCore({ up: { memory } }, { rates: [rate(2, { name: 'few' })] });
  const client = await gateway.connect({ principal: ANN });
  assert.equal(await callsMade(client, 'up__echo', 2), 2);
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  assert.ok(answer.kind === 'error');
  const { retryAfterMs, ...data } = Object(answer.error.data);
  assert.deepEqual(data, { code: 'rate-limited', upstream: 'up', executed: 'no', retryable: true, rate: 'few' });
  assert.ok(retryAfterMs > 0 && retryAfterMs <= MINUTE_MS);
  assert.match(
    answer.error.message,
    /you may make 2 such calls per 1m \(rate "few"\)\. The call was not made\. Wait \d+ s/,
  );
  assert.equal(memory.requests('tools/call').length, 2);
  // Another session of the same principal shares the count; another principal does not.
  assert.equal(await callsMade(await gateway.connect({ principal: ANN }), 'up__echo', 1), 0);
  assert.equal(await callsMade(await gateway.connect({ principal: BOB }), 'up__echo', 3), 2);
  assert.match(await gateway.metrics.text(), /^linkspan_shed_total\{reason="rate-limited"\} 3$/m);
});

test('a rate for all principals together has one count', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates: [rate(3, { per: 'all' })] });
  const [ann, bob] = [await gateway.connect({ principal: ANN }), await gateway.connect({ principal: BOB })];
  assert.deepEqual([await callsMade(ann, 'up__echo', 2), await callsMade(bob, 'up__echo', 2)], [2, 1]);
});

test('a rate holds only for its tools, upstreams and endpoints', TIMEOUT, async () => {
  const rates = [
    rate(1, { name: 'tool', tools: ['*__echo'] }),
    rate(2, { name: 'upstream', upstreams: ['two'] }),
    rate(1, { name: 'endpoint', endpoints: ['one'] }),
  ];
  await using gateway = await testCore({ one: { memory: upstream() }, two: { memory: upstream() } }, { rates });
  const client = await gateway.connect();
  assert.equal(await callsMade(client, 'one__echo', 2), 1);
  assert.equal(await callsMade(client, 'one__other', 3), 3);
  assert.equal(await callsMade(client, 'two__other', 3), 2);
  const inside = await gateway.connect({ view: 'one' });
  assert.equal(await callsMade(inside, 'other', 2), 1);
  assert.equal((await client.request('tools/list')).answer.kind, 'result');
});

/** A profile that renames the tool `up__echo`. */
const RENAMING = {
  id: 'p',
  upstreams: ['up'],
  includeTools: undefined,
  excludeTools: [],
  renames: { up__echo: 'say' },
};

for (const named of ['up__echo', 'say', 'echo', 'up__*o']) {
  test(`a rate that names ${named} holds for the tool by its names at all endpoints`, TIMEOUT, async () => {
    const own = { rates: [rate(1, { tools: [named] })], profiles: [RENAMING] };
    await using gateway = await testCore({ up: { memory: upstream() } }, own);
    const made = [];
    for (const [view, name] of [
      ['', 'up__echo'],
      ['up', 'echo'],
      ['p', 'say'],
    ] as const) {
      const client = await gateway.connect({ view });
      made.push(await callsMade(client, name, 2));
      assert.equal(await call(client, view === 'up' ? 'other' : 'up__other'), 'ok');
    }
    assert.deepEqual(made, [1, 0, 0]);
  });
}

test('a rate with endpoints holds there alone, by any name of its tools', TIMEOUT, async () => {
  const rates = [rate(1, { tools: ['up__echo'], endpoints: ['up'] })];
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates });
  const [inside, client] = [await gateway.connect({ view: 'up' }), await gateway.connect()];
  assert.deepEqual([await callsMade(inside, 'echo', 2), await callsMade(client, 'up__echo', 2)], [1, 2]);
});

test('a tool that may be repeated may be so by its names at all endpoints', TIMEOUT, async () => {
  const own = { repeats: repeats(1, ['*__echo']), profiles: [RENAMING] };
  await using gateway = await testCore({ up: { memory: upstream() } }, own);
  const same = () => ({});
  const [inside, renamed] = [await gateway.connect({ view: 'up' }), await gateway.connect({ view: 'p' })];
  assert.deepEqual([await callsMade(inside, 'echo', 3, same), await callsMade(renamed, 'say', 3, same)], [3, 3]);
  assert.equal(await callsMade(inside, 'other', 3, same), 1);
});

test('a rate holds for the tools of a reload by their new names', TIMEOUT, async () => {
  const rates = [rate(1, { tools: ['new__echo'] })];
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates });
  const client = await gateway.connect({ view: 'up' });
  assert.equal(await callsMade(client, 'echo', 2), 2);
  const { config } = gateway;
  const next = { ...config, upstreams: config.upstreams.map((one) => ({ ...one, prefix: 'new__' })) };
  await gateway.core.apply(next, diffConfigs(config, next));
  assert.equal(await callsMade(client, 'echo', 2), 1);
});

test('a tool with a user interface has one rate and one count by both of its names', TIMEOUT, async () => {
  const board = { name: 'board', inputSchema: { type: 'object' }, _meta: { ui: { resourceUri: 'ui://b' } } };
  const memory = memoryUpstream({
    lists: { tools: [board] },
    request: (peer, request) => peer.send(result(request, { content: [] })),
  });
  const own = { rates: [rate(4, { tools: ['up__*'] })], repeats: repeats(2) };
  await using gateway = await testCore({ up: { memory } }, own);
  const client = await gateway.connect();
  const same = () => ({ path: '/' });
  assert.deepEqual([await callsMade(client, 'up__board', 1, same), await callsMade(client, 'board', 3, same)], [1, 1]);
  assert.deepEqual([await callsMade(client, 'up__board', 1), await callsMade(client, 'board', 3)], [1, 1]);
  assert.match(await gateway.metrics.text(), /gen_ai_tool_name="up__board"/);
  assert.doesNotMatch(await gateway.metrics.text(), /gen_ai_tool_name="board"/);
});

/** Principals, and whether a rate with these subjects holds for them. */
const subjects: readonly (readonly [
  to: Partial<PrincipalSelector>,
  yes: Partial<Principal>,
  no: Partial<Principal>,
])[] = [
  [{ keys: ['ann'] }, { keyName: 'ann' }, { keyName: 'bob' }],
  [{ groups: ['ops'] }, { groups: ['dev', 'ops'] }, { groups: ['dev'] }],
  [{ scopes: ['mcp'] }, { scopes: ['mcp'] }, { scopes: [] }],
  [{ subjects: ['s'] }, { subject: 's' }, { subject: 't' }],
  [{ issuers: ['https://i'] }, { issuer: 'https://i' }, {}],
  [{ clients: ['c'] }, { clientId: 'c' }, { clientId: 'd' }],
  [
    { claims: { 'realm.roles': ['x'] } },
    { claims: { realm: { roles: ['w', 'x'] } } },
    { claims: { realm: { roles: 'w' } } },
  ],
  [{ claims: { 'a.b': ['1'] } }, { claims: { 'a.b': 1 } }, { claims: { a: { b: 2 } } }],
  [
    { keys: ['ann'], scopes: ['mcp'] },
    { keyName: 'ann', scopes: ['mcp'] },
    { keyName: 'ann', scopes: [] },
  ],
];

for (const [to, yes, no] of subjects) {
  test(`a rate to ${JSON.stringify(to)} holds for those principals alone`, TIMEOUT, async () => {
    const rates = [rate(1, { to: { ...ANYONE, anyone: false, ...to } })];
    await using gateway = await testCore({ up: { memory: upstream() } }, { rates });
    const held = await gateway.connect({ principal: principal('p1', yes) });
    const free = await gateway.connect({ principal: principal('p2', no) });
    assert.deepEqual([await callsMade(held, 'up__echo', 3), await callsMade(free, 'up__echo', 3)], [1, 3]);
  });
}

test('a rate to groups holds for tokens whose claims have them, as grants do', TIMEOUT, async () => {
  const rates = [rate(1, { to: { ...ANYONE, anyone: false, groups: ['students'] } })];
  const claims = [{ name: 'roles', path: 'realm_access.roles', type: 'list' }] as const;
  const all = { all: { upstreams: undefined } };
  const access = accessOf(all, [{ roles: ['all'], anyone: true }], { claims, groupClaims: ['roles'] });
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates, access });
  const student = principal('p1', { claims: { realm_access: { roles: ['students'] } } });
  const held = await gateway.connect({ principal: student });
  const teacher = principal('p2', { claims: { realm_access: { roles: ['teachers'] } } });
  const free = await gateway.connect({ principal: teacher });
  assert.deepEqual([await callsMade(held, 'up__echo', 3), await callsMade(free, 'up__echo', 3)], [1, 3]);
  // Without groupClaims nobody is in a group by a token.
  const next = { ...gateway.config, access: accessOf(all, [{ roles: ['all'], anyone: true }]) };
  await gateway.core.apply(next, diffConfigs(gateway.config, next));
  assert.equal(await callsMade(held, 'up__echo', 3), 3);
});

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  test(`a call that does not reach a ${era} server over HTTP counts in no rate or repeat`, TIMEOUT, async () => {
    const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
    let refusal: number | undefined;
    const answers = {
      'tools/call': ({ response }: Served) => {
        if (refusal === undefined) return { resultType: 'complete', content: [] };
        response.writeHead(refusal).end();
        return undefined;
      },
    };
    const server = await start({ tools, answers });
    const own = { rates: [rate(4)], repeats: repeats(4) };
    await using gateway = await testCore({ up: server.config }, own);
    const client = await gateway.connect({ principal: ANN });
    const code = async () => Object(await call(client, 'up__echo')).code;
    assert.equal(await call(client, 'up__echo'), 'ok');
    refusal = 429;
    for (let n = 0; n < 2; n++) assert.equal(await code(), 'overloaded', 'a call that the server refuses counts');
    await server[Symbol.asyncDispose]();
    for (let n = 0; n < 4; n++) {
      const { code: failed, executed } = Object(await call(client, 'up__echo'));
      assert.deepEqual([failed, executed], ['upstream-unavailable', 'no']);
    }
    refusal = undefined;
    await using again = await start({ tools, answers });
    await gateway.reload({ upstreams: gateway.config.upstreams.map((one) => ({ ...one, ...again.config })) });
    const codes = [await call(client, 'up__echo'), await code()];
    assert.deepEqual(codes, ['ok', 'rate-limited']);
  });
}

test('a refused call costs nothing of the other rates', TIMEOUT, async () => {
  const rates = [rate(4, { name: 'all' }), rate(1, { name: 'echo', tools: ['up__echo'] })];
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates });
  const client = await gateway.connect();
  assert.equal(await callsMade(client, 'up__echo', 5), 1);
  assert.equal(await callsMade(client, 'up__other', 5), 3);
});

test('the retry of a parked call and the polls of a task do not count again', TIMEOUT, async () => {
  await using gateway = await testCore(
    { up: { memory: asker().memory }, tasks: { memory: coreTaskUpstream().memory } },
    { rates: [rate(1, { upstreams: ['up'] }), rate(1, { name: 'tasks', upstreams: ['tasks'] })] },
  );
  const capabilities = { elicitation: { form: {} } };
  const ask = (retry: object = {}) =>
    modernRequest(gateway, 'tools/call', { ...toolCall('up__ask', { nonce: 'n' }), ...retry }, { capabilities }).reply;
  const { requestState, inputRequests } = inputRequiredIn(await ask());
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, accepted('Ada')]));
  assert.equal((await ask({ requestState, inputResponses })).result?.['resultType'], 'complete');
  assert.equal(Object((await ask()).error?.data).code, 'rate-limited');

  const client = await gateway.connect();
  const created = await client.result('tools/call', { ...toolCall('tasks__job'), task: { ttl: 1_000 } });
  const { taskId } = Object(created['task']);
  for (let n = 0; n < 5; n++) await client.result('tasks/get', { taskId });
});

test('a reload keeps the counts of rates, and applies other limits at once', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates: [rate(2)] });
  const client = await gateway.connect();
  assert.equal(await callsMade(client, 'up__echo', 1), 1);
  const reload = async (rates: readonly RateConfig[]) => {
    const next = { ...gateway.config, rates };
    await gateway.core.apply(next, diffConfigs(gateway.config, next));
  };
  await reload([rate(2), rate(1, { name: 'new', tools: ['up__other'] })]);
  assert.equal(await callsMade(client, 'up__echo', 3), 1, 'one is used already');
  assert.equal(await callsMade(client, 'up__other', 1), 0);
  await reload([]);
  assert.equal(await callsMade(client, 'up__echo', 3), 3);
});

test('a principal has a bounded number of requests at upstreams, in all its sessions', TIMEOUT, async () => {
  const memory = upstream();
  await using gateway = await testCore({ up: { memory } }, { limits: { inFlightPerPrincipal: 2 } });
  const [one, two] = [await gateway.connect({ principal: ANN }), await gateway.connect({ principal: ANN })];
  const waiting = [one, two].map((client) => client.send('tools/call', toolCall('up__waits'), { id: '9' }));
  await memory.until(() => (memory.requests('tools/call').length === 2 ? true : undefined));
  assert.equal(Object(await call(one, 'up__echo')).code, 'overloaded');
  assert.equal(await call(await gateway.connect({ principal: BOB }), 'up__echo'), 'ok');
  for (const client of [one, two]) client.notify('notifications/cancelled', { requestId: 9 });
  await Promise.all(waiting);
  assert.equal(await call(one, 'up__echo'), 'ok');
});

test('the same call is refused after some repeats, with a text for the model', TIMEOUT, async () => {
  const memory = upstream();
  await using gateway = await testCore({ up: { memory } }, { repeats: repeats(3, ['up__other']) });
  const client = await gateway.connect({ principal: ANN });
  const same = () => ({ path: '/tmp' });
  assert.equal(await callsMade(client, 'up__echo', 5, same), 3);
  const { answer } = await client.request('tools/call', toolCall('up__echo', same()));
  assert.ok(answer.kind === 'error');
  const { code, executed, retryable, retryAfterMs } = Object(answer.error.data);
  assert.deepEqual([code, executed, retryable, retryAfterMs > 0], ['repeated-call', 'no', false, true]);
  assert.match(answer.error.message, /made 3 times with the same arguments within 1m\. Do not repeat it/);
  assert.equal(await call(client, 'up__echo', { path: '/' }), 'ok', 'other arguments');
  assert.equal(await callsMade(client, 'up__other', 9, same), 9, 'a tool that may be repeated');
  assert.equal(await call(await gateway.connect({ principal: BOB }), 'up__echo', same()), 'ok', 'another principal');
});

test('a made-up requestState exempts no legacy call from the bound on repeats', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, { repeats: repeats(2) });
  const client = await gateway.connect({ principal: ANN });
  const kinds = [];
  for (let n = 0; n < 4; n++) {
    const params = { ...toolCall('up__echo'), requestState: `made up ${n}` };
    kinds.push((await client.request('tools/call', params)).answer.kind);
  }
  assert.deepEqual(kinds, ['result', 'result', 'error', 'error']);
});

test('a call that a rate refuses does not count as a repeat', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates: [rate(2)], repeats: repeats(3) });
  const client = await gateway.connect({ principal: ANN });
  assert.equal(await callsMade(client, 'up__echo', 9, () => ({})), 2);
  const without = { ...gateway.config, rates: [] };
  await gateway.core.apply(without, diffConfigs(gateway.config, without));
  assert.equal(await call(client, 'up__echo'), 'ok', 'the third call that is made');
  assert.equal(Object(await call(client, 'up__echo')).code, 'repeated-call');
});

test('a refused repeat uses up no rate', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, { rates: [rate(3)], repeats: repeats(1) });
  const client = await gateway.connect({ principal: ANN });
  assert.equal(await callsMade(client, 'up__echo', 9, () => ({})), 1);
  assert.equal(await callsMade(client, 'up__echo', 9), 2);
});

test('another window after a reload holds for counts that have begun', TIMEOUT, async (t) => {
  const time = stopTime(t);
  await using gateway = await testCore({ up: { memory: upstream() } }, { repeats: repeats(1) });
  const { core, config } = gateway;
  const client = await gateway.connect({ principal: ANN });
  const code = async () => Object(await call(client, 'up__echo')).code;
  assert.equal(await call(client, 'up__echo'), 'ok');
  time.pass(40_000);
  assert.equal(await code(), 'repeated-call');
  const shorter = { ...config, repeats: { ...repeats(1), windowMs: 30_000 } };
  await core.apply(shorter, diffConfigs(config, shorter));
  assert.equal(await call(client, 'up__echo'), 'ok');
  time.pass(29_000);
  assert.equal(await code(), 'repeated-call');
  await core.apply(config, diffConfigs(shorter, config));
  time.pass(30_000);
  assert.equal(await code(), 'repeated-call', 'the longer window has not ended');
});

test('limit repeatedCalls: the oldest count begins again', () => {
  const reached: LimitName[] = [];
  const counts = new RepeatedCalls((limit) => reached.push(limit));
  const count = (text: string, nowMs = 0) => {
    const counted = counts.count([text], 1, 1_000, nowMs);
    return typeof counted === 'number' ? counted : undefined;
  };
  for (let n = 0; n < LIMITS.repeatedCalls; n++) assert.equal(count(`c${n}`), undefined);
  assert.equal(count('c1'), 1_000);
  assert.equal(count('one more'), undefined);
  assert.deepEqual(reached, ['repeatedCalls']);
  assert.equal(count('c0'), undefined, 'it was removed');
  assert.equal(count('c9', 1_000), undefined, 'its window has ended');
});

test('refusals by limits are in the audit log with their rule', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const own = { rates: [rate(2, { name: 'few' })], repeats: repeats(1) };
    await using gateway = await testCore({ up: { memory: upstream() } }, own, undefined, audit.trail);
    const client = await gateway.connect();
    await callsMade(client, 'up__echo', 2, () => ({}));
    await callsMade(client, 'up__echo', 2);
  }
  const calls = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    calls.map(({ decision, rule, error, executed, upstream: at }) => [
      decision,
      Object(rule).name,
      error,
      executed,
      at,
    ]),
    [
      ['allowed', undefined, undefined, 'yes', 'up'],
      ['refused', 'repeats', 'repeated-call', 'no', 'up'],
      ['allowed', undefined, undefined, 'yes', 'up'],
      ['refused', 'rate few', 'rate-limited', 'no', 'up'],
    ],
  );
});

/** Bounds that refuse a second call, and the recorded rule. */
const bounds = [
  { name: 'a full queue', rule: undefined, inFlightPerPrincipal: undefined, concurrency: 1 },
  { name: 'inFlightPerPrincipal', rule: { name: 'inFlightPerPrincipal' }, inFlightPerPrincipal: 1, concurrency: 2 },
] as const;

for (const { name, rule, inFlightPerPrincipal, concurrency } of bounds) {
  test(`a call that the policy allows and ${name} refuses is recorded so`, TIMEOUT, async () => {
    await using audit = await openTestAudit();
    const access = accessOf({ all: { upstreams: ['up'] } }, [{ roles: ['all'], keys: ['ann'] }]);
    {
      const memory = upstream();
      const upstreams = { up: { memory, concurrency, queue: 0 } };
      const own = { access, limits: { inFlightPerPrincipal } };
      await using gateway = await testCore(upstreams, own, undefined, audit.trail);
      const client = await gateway.connect({ principal: ANN });
      const waiting = client.send('tools/call', toolCall('up__waits'), { id: '9' });
      await memory.until(() => memory.requests('tools/call')[0]);
      assert.equal(Object(await call(client, 'up__other')).code, 'overloaded');
      client.notify('notifications/cancelled', { requestId: 9 });
      await waiting;
    }
    const [refused] = (await audit.records()).filter((record) => record['name'] === 'up__other');
    assert.deepEqual([refused?.['decision'], refused?.['rule'], refused?.['executed']], ['refused', rule, 'no']);
  });
}

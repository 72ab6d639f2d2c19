/** Tests the decisions of a decision point outside of the gateway, with clients of both eras. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/values/config.ts';
import { diffConfigs } from '../../src/config/changes/diff.ts';
import { NO_HINTS } from '../../src/policy/decide.ts';
import { operatorPrincipal, type Principal } from '../../src/policy/principal.ts';
import { accessOf, keyOf, tokenOf } from '../policy/policies.ts';
import { openTestAudit } from '../support/audit.ts';
import { type TestCore, testCore, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { askingUpstream, parkedAsk } from '../support/parked-ask.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';
import { coreTaskUpstream, extensionUpstream } from '../support/task-upstreams.ts';
import { ALLOW, DENY, replyWith, startDecisionPoint, type TestDecisionPoint } from '../support/test-decision-point.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ADA = keyOf('ada', ['eng']);
const ROLES = { all: { upstreams: ['up', 'other'], deny: [{ tools: ['forbidden'] }] } };
const GRANTS = [{ roles: ['all'], anyone: true }] as const;
const ON_DEMAND: Config['auth'] = {
  jwt: [
    {
      issuer: 'https://issuer.test',
      jwksUrl: 'https://issuer.test/jwks',
      audiences: [],
      algorithms: [],
      requiredScopes: [],
      scopesOnDemand: [{ scope: 'w', advertised: 'w' }],
    },
  ],
  apiKeys: [],
};

/** Returns a policy that allows all but one tool, if the decision point allows it too. */
function accessWith({ config }: Pick<TestDecisionPoint, 'config'>): Config['access'] {
  return { ...accessOf(ROLES, GRANTS), external: config };
}

function upstream() {
  return memoryUpstream({
    capabilities: { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {} },
    lists: {
      tools: ['get', 'put', 'forbidden'].map((name) => ({
        name,
        inputSchema: { type: 'object' },
        annotations: { readOnlyHint: true },
      })),
      prompts: [{ name: 'review' }],
      resources: [{ uri: 'test://a', name: 'a' }],
    },
    request: (peer, request) => peer.send(result(request, request.method === 'tools/call' ? { content: [] } : {})),
  });
}

async function place(point: Pick<TestDecisionPoint, 'config'>, more: Partial<Config> = {}) {
  const [up, other] = [upstream(), upstream()];
  const access = accessWith(point);
  const gateway = await testCore({ up: { memory: up }, other: { memory: other } }, { access, ...more });
  await gateway.core.refresh();
  return { gateway, up, other, [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose]() };
}

interface Reply {
  readonly result?: Readonly<Record<string, unknown>> | undefined;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown } | undefined;
}
type Ask = (method: string, params?: object) => Promise<Reply>;
type Connect = (gateway: TestCore, principal?: Principal, view?: string) => Promise<Ask>;

const ERAS: Readonly<Record<string, Connect>> = {
  legacy: async (gateway, principal = ADA, view = '') => {
    const client = await gateway.connect({ principal, view });
    return async (method, params) => {
      const { answer } = await client.request(method, params);
      return answer.kind === 'result' ? { result: JSON.parse(answer.result) } : { error: answer.error };
    };
  },
  modern: (gateway, principal = ADA, view = '') =>
    Promise.resolve((method, params) => modernRequest(gateway, method, params, { principal, view }).reply),
};

async function change(gateway: TestCore, access: Config['access']): Promise<void> {
  const next = { ...gateway.config, access };
  await gateway.core.prepare(next);
  await gateway.core.apply(next, diffConfigs(gateway.config, next));
}

async function metricOf({ metrics }: TestCore, series: string): Promise<number> {
  const line = (await metrics.text()).split('\n').find((one) => one.startsWith(`${series} `));
  return Number(line?.slice(series.length));
}

const COMPLETION = { ref: { type: 'ref/prompt', name: 'up__review' }, argument: { name: 'a', value: 'b' } };
const ASKED_ABOUT = [
  ['tools/call', 'up__get', toolCall('up__get', { secret: 'argument' })],
  ['prompts/get', 'up__review', { name: 'up__review' }],
  ['resources/read', 'up+test://a', { uri: 'up+test://a' }],
  ['completion/complete', 'up__review', COMPLETION],
] as const;

for (const [era, connect] of Object.entries(ERAS)) {
  // P-012
  test(`the decision point is asked once about a request, and never about lists (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using at = await place(point);
    const ask = await connect(at.gateway);
    for (const method of ['tools/list', 'prompts/list', 'resources/list']) await ask(method);
    assert.equal(point.asked.length, 0);
    for (const [method, , params] of ASKED_ABOUT) assert.equal((await ask(method, params)).error, undefined, method);
    const names = point.asked.map(({ action, resource }) => [action.name, resource.type, resource.id]);
    assert.deepEqual(names, [
      ['tools/call', 'tool', 'up/get'],
      ['prompts/get', 'prompt', 'up/review'],
      ['resources/read', 'resource', 'test://a'],
      ['completion/complete', 'prompt', 'up/review'],
    ]);
    const [question] = point.asked;
    assert.deepEqual(question?.subject, {
      type: 'key',
      id: 'ada',
      properties: { groups: ['eng'], scopes: [], claims: {} },
    });
    assert.doesNotMatch(JSON.stringify(point.asked), /argument"/, 'arguments are not sent by default');
    assert.equal(point.headers[0]?.authorization, 'Bearer point-secret');
    await ask('tools/call', toolCall('up__forbidden'));
    assert.equal(point.asked.length, ASKED_ABOUT.length, 'it is not asked about what the rules deny');
  });

  // P-012
  test(`a denial has the answer of an unknown item, byte for byte (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using at = await place(point);
    const ask = await connect(at.gateway);
    point.reply = DENY;
    for (const [method, denied, params] of ASKED_ABOUT) {
      const unknown = denied.replace(/^up/, 'no');
      const other: object = JSON.parse(JSON.stringify(params).replaceAll(denied, unknown));
      const [one, two] = [await ask(method, params), await ask(method, other)];
      assert.ok(one.error !== undefined, method);
      assert.equal(JSON.stringify(one).replaceAll(denied, unknown), JSON.stringify(two), method);
    }
    for (const [method] of ASKED_ABOUT) assert.equal(at.up.requests(method).length, 0, method);
    assert.equal(await metricOf(at.gateway, 'linkspan_access_denied_total{upstream="up"}'), 4);
    assert.equal(await metricOf(at.gateway, 'linkspan_external_decisions_total{outcome="denied"}'), 4);
    assert.equal(await metricOf(at.gateway, 'linkspan_external_decision_duration_seconds_count'), 4);
  });

  // P-012
  test(`at an endpoint that passes on unknown names, a denial is like one of them (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using at = await place(point);
    const ask = await connect(at.gateway, ADA, 'up');
    point.reply = (response, question) =>
      (['up/get', 'up/review', 'test://a'].includes(question.resource.id) ? DENY : ALLOW)(response, question);
    const own = ASKED_ABOUT.map(([method, name, params]) => {
      const bare = name.replace(/^up(__|\+)/, '');
      const sent: object = JSON.parse(JSON.stringify(params).replaceAll(name, bare));
      return [method, bare, sent] as const;
    });
    const alike = async () => {
      for (const [method, denied, params] of own) {
        const unknown = `no-${denied}`;
        const other: object = JSON.parse(JSON.stringify(params).replaceAll(denied, unknown));
        const [one, two] = [await ask(method, params), await ask(method, other)];
        assert.ok(one.error !== undefined, method);
        assert.equal(JSON.stringify(one).replaceAll(denied, unknown), JSON.stringify(two), method);
        assert.equal(at.up.requests(method).length, 0, method);
      }
    };
    const all = { ...accessOf({ all: { upstreams: ['up', 'other'] } }, GRANTS) };
    await change(at.gateway, { ...all, external: point.config });
    await alike();
    await change(at.gateway, all);
    assert.equal((await ask('tools/call', toolCall('no-get'))).error, undefined, 'the upstream gets unknown names');
    await change(at.gateway, { ...all, external: { ...point.config, upstreams: ['other'] } });
    assert.equal((await ask('tools/call', toolCall('no-get'))).error, undefined);
    assert.equal(at.up.requests('tools/call').length, 2);
  });

  const outages = {
    'a status other than 200': replyWith(500, '{"decision":true}'),
    'no JSON': replyWith(200, '<html>'),
    'a decision that is no boolean': replyWith(200, '{"decision":"true"}'),
    'a list': replyWith(200, '[true]'),
    'a redirect': replyWith(307, '', { location: 'http://127.0.0.1:1/' }),
  };
  for (const [name, reply] of Object.entries(outages)) {
    // P-012
    test(`an answer with ${name} refuses the request (${era})`, TIMEOUT, async () => {
      await using point = await startDecisionPoint();
      await using at = await place(point);
      const ask = await connect(at.gateway);
      point.reply = reply;
      const { error } = await ask('tools/call', toolCall('up__get'));
      const data = { code: 'access-unavailable', upstream: 'up', executed: 'no', retryable: true };
      assert.deepEqual([error?.code, error?.data], [-31028, data]);
      assert.doesNotMatch(error?.message ?? '', /127\.0\.0\.1|HTTP|secret/);
      assert.equal(at.up.requests('tools/call').length, 0);
      point.reply = ALLOW;
      assert.equal((await ask('tools/call', toolCall('up__get'))).error, undefined);
    });
  }

  // P-012
  test(`no answer within the timeout refuses the request (${era})`, TIMEOUT, async () => {
    // subject
    await using point = await startDecisionPoint({ timeoutMs: 50 });
    await using at = await place(point);
    const ask = await connect(at.gateway);
    point.reply = () => undefined;
    const { error } = await ask('tools/call', toolCall('up__get'));
    assert.partialDeepStrictEqual(error?.data, { code: 'access-unavailable', executed: 'no' });
    await point.until(() => (point.givenUp === 1 ? true : undefined));
    assert.equal(await metricOf(at.gateway, 'linkspan_external_decisions_total{outcome="late"}'), 1);
  });

  // P-012
  test(`a reload adds and removes the decision point for the next request (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using at = await place(point);
    const ask = await connect(at.gateway);
    point.reply = DENY;
    const isAllowed = async (tool = 'up__get') => (await ask('tools/call', toolCall(tool))).error === undefined;
    assert.equal(await isAllowed(), false);
    await change(at.gateway, accessOf(ROLES, GRANTS));
    assert.equal(await isAllowed(), true);
    await change(at.gateway, { ...accessOf(ROLES, GRANTS), external: { ...point.config, upstreams: ['other'] } });
    assert.deepEqual([await isAllowed(), await isAllowed('other__get')], [true, false]);
    assert.equal(point.asked.length, 2);
  });

  // P-012
  test(`arguments are sent if the config says so, and have one reading (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint({ arguments: true });
    await using at = await place(point);
    const ask = await connect(at.gateway);
    await ask('tools/call', toolCall('up__get', { path: '/a' }));
    assert.deepEqual(point.asked[0]?.resource.properties['arguments'], { path: '/a' });
    const ambiguous = { path: '/a', PATH: '/b' };
    const { error } = await ask('tools/call', toolCall('up__get', ambiguous));
    assert.match(error?.message ?? '', /^Unknown tool/);
    const count = (outcome: string) => metricOf(at.gateway, `linkspan_external_decisions_total{outcome="${outcome}"}`);
    assert.deepEqual([await count('ambiguous'), await count('denied')], [1, 0]);
    const large = toolCall('up__get', { ...ambiguous, text: 'a'.repeat(64 * 1_024) });
    const refused = (await ask('tools/call', large)).error;
    assert.partialDeepStrictEqual(refused?.data, { code: 'access-unavailable', retryable: false });
    assert.equal(await count('too-large'), 1);
    assert.equal(point.asked.length, 1);
  });

  // P-012
  test(`operators are not asked about (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using at = await place(point);
    const ask = await connect(at.gateway, operatorPrincipal('root'));
    assert.equal((await ask('tools/call', toolCall('up__get'))).error, undefined);
    assert.equal(point.asked.length, 0);
  });

  // P-012
  test(`the record of a denial names the decision point, that of an outage does not (${era})`, TIMEOUT, async () => {
    await using point = await startDecisionPoint();
    await using audit = await openTestAudit();
    {
      const access = { ...accessOf(ROLES, GRANTS), external: point.config };
      await using gateway = await testCore({ up: { memory: upstream() } }, { access }, undefined, audit.trail);
      const ask = await (ERAS[era] ?? connect)(gateway);
      point.reply = DENY;
      await ask('tools/call', toolCall('up__get'));
      point.reply = replyWith(500, '');
      await ask('tools/call', toolCall('up__get'));
      const { external } = access;
      await change(gateway, { ...access, external: { ...external, arguments: true } });
      await ask('tools/call', toolCall('up__get', { path: '/a', PATH: '/b' }));
    }
    const calls = (await audit.records()).filter(({ method }) => method === 'tools/call');
    assert.deepEqual(
      calls.map(({ decision, rule, error, executed }) => [decision, rule, error, executed]),
      [
        ['denied', { name: 'external' }, 'unknown-tool', 'no'],
        ['refused', undefined, 'access-unavailable', 'no'],
        ['denied', { name: 'external-arguments' }, 'unknown-tool', 'no'],
      ],
    );
  });
}

// P-012 P-002
test('a state that is not valid tells no hidden name from an unknown one', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const external = { ...accessOf(ROLES, GRANTS), external: point.config };
  const hiding = { all: { upstreams: ['up', 'other'], tools: ['other'] } };
  const scoped = accessOf(hiding, [...GRANTS, { roles: ['all'], scopes: ['w'] }]);
  point.reply = DENY;
  for (const access of [external, accessOf(hiding, GRANTS), scoped]) {
    await using at = await place(point, { access, auth: ON_DEMAND });
    const principal = access === scoped ? tokenOf('ada', {}, ['mcp']) : ADA;
    for (const [method, denied, params] of ASKED_ABOUT) {
      const unknown = denied.replace(/^up/, 'no');
      const other: object = JSON.parse(JSON.stringify(params).replaceAll(denied, unknown));
      const ask = (sent: object) =>
        modernRequest(at.gateway, method, { ...sent, requestState: 'x', inputResponses: {} }, { principal }).reply;
      const [one, two] = [await ask(params), await ask(other)];
      assert.ok(one.error !== undefined, method);
      assert.equal(JSON.stringify(one).replaceAll(denied, unknown), JSON.stringify(two), method);
    }
  }
});

// P-012
test('an explanation is asked about, and not counted', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using at = await place(point);
  point.reply = replyWith(500, '');
  const item = { kind: 'tool', upstream: 'up', name: 'get', hints: NO_HINTS } as const;
  const asked = { principal: ADA, view: '', method: 'tools/call', item, args: undefined };
  assert.equal((await at.gateway.core.external.explain(asked))?.outcome, 'failed');
  assert.equal(point.asked.length, 1);
  assert.equal(await metricOf(at.gateway, 'linkspan_external_decisions_total{outcome="failed"}'), 0);
});

// P-012
test('a request that its client cancels is not asked about any more', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using at = await place(point);
  point.reply = () => undefined;
  const client = await at.gateway.connect({ principal: ADA });
  const waiting = client.send('tools/call', toolCall('up__get'), { id: '7' });
  await point.until(() => point.asked[0]);
  client.notify('notifications/cancelled', { requestId: 7 });
  assert.equal((await waiting).answer, undefined);
  await point.until(() => (point.givenUp === 1 ? true : undefined));

  const { call, reply } = modernRequest(at.gateway, 'tools/call', toolCall('up__get'), { principal: ADA });
  await point.until(() => point.asked[1]);
  call.cancel('gone');
  assert.partialDeepStrictEqual((await reply).error?.data, { code: 'cancelled', executed: 'no' });
  await point.until(() => (point.givenUp === 2 ? true : undefined));
  assert.equal(at.up.requests('tools/call').length, 0);
  assert.equal(await metricOf(at.gateway, 'linkspan_external_decision_duration_seconds_count'), 0);
});

// P-012
test('a call that the policy denies while it is asked about is not sent', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using at = await place(point);
  const held = Promise.withResolvers<void>();
  point.reply = (response, question) => void held.promise.then(() => ALLOW(response, question));
  const ask = await ERAS['modern']?.(at.gateway);
  const calling = ask?.('tools/call', toolCall('up__get'));
  await point.until(() => point.asked[0]);
  await change(at.gateway, accessOf({}, []));
  held.resolve();
  assert.match((await calling)?.error?.message ?? '', /^Unknown tool/);
  assert.equal(at.up.requests('tools/call').length, 0);
});

// P-012
test('a subscription of a session is asked about, and a denied one is unknown', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using at = await place(point);
  const client = await at.gateway.connect({ principal: ADA });
  const subscribe = async (uri: string) => (await client.request('resources/subscribe', { uri })).answer;
  point.reply = DENY;
  const [denied, unknown] = [await subscribe('up+test://a'), await subscribe('none+test://a')];
  assert.equal(denied.kind, 'error');
  assert.equal(JSON.stringify(denied).replaceAll('up+test', 'none+test'), JSON.stringify(unknown));
  point.reply = replyWith(500, '');
  assert.match(JSON.stringify(await subscribe('up+test://a')), /access-unavailable/);
  assert.equal(at.up.requests('resources/subscribe').length, 0);
  point.reply = ALLOW;
  assert.equal((await subscribe('up+test://a')).kind, 'result');
  assert.deepEqual(
    point.asked.map(({ action, resource }) => [action.name, resource.id]),
    Array.from({ length: 3 }, () => ['resources/subscribe', 'test://a']),
  );
  const operator = await at.gateway.connect({ principal: operatorPrincipal('root') });
  await operator.result('resources/subscribe', { uri: 'up+test://a' });
  assert.equal(point.asked.length, 3);
});

// P-012
test('a stream is acknowledged without the resources that are denied or not decided', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using at = await place(point);
  const replies = [ALLOW, DENY, replyWith(500, '')];
  for (const reply of replies) {
    point.reply = reply;
    const notifications = { resourceSubscriptions: ['up+test://a'] };
    const listen = modernRequest(at.gateway, 'subscriptions/listen', { notifications }, { principal: ADA });
    await waitUntil(() => listen.messages.length > 0);
    const expected = reply === ALLOW ? { notifications } : { notifications: {} };
    const [acknowledged] = listen.messages;
    assert.ok(acknowledged?.kind === 'notification');
    assert.partialDeepStrictEqual(JSON.parse(acknowledged.params?.toString() ?? ''), expected);
    assert.equal(acknowledged.params?.toString().includes('test://a'), reply === ALLOW);
    listen.call.close();
    await listen.reply;
  }
  assert.deepEqual(
    point.asked.map(({ action }) => action.name),
    replies.map(() => 'subscriptions/listen'),
  );
});

/** Returns a gateway whose upstream has many resources, and a stream of them. */
async function placeOfMany(point: TestDecisionPoint, count: number) {
  const uris = Array.from({ length: count }, (_, at) => `test://${at}`);
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: uris.map((uri) => ({ uri, name: uri })) },
    request: (peer, request) => peer.send(result(request, {})),
  });
  const gateway = await testCore({ up: { memory } }, { access: accessWith(point) });
  await gateway.core.refresh();
  const notifications = { resourceSubscriptions: uris.map((uri) => `up+${uri}`) };
  const listen = modernRequest(gateway, 'subscriptions/listen', { notifications }, { principal: ADA });
  return { gateway, memory, listen, [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose]() };
}

// P-012
test('the parts of a stream are asked about few at a time, each with its deadline', TIMEOUT, async () => {
  // subject
  await using point = await startDecisionPoint({ timeoutMs: 1_000 });
  let [now, most] = [0, 0];
  point.reply = (response, question) => {
    most = Math.max(most, ++now);
    setTimeout(() => {
      now--;
      ALLOW(response, question);
    }, 200);
  };
  await using at = await placeOfMany(point, 48);
  await waitUntil(() => at.listen.messages.length > 0);
  const [acknowledged] = at.listen.messages;
  assert.ok(acknowledged?.kind === 'notification');
  assert.equal(acknowledged.params?.toString().match(/up\+test/g)?.length, 48);
  assert.equal(most, 8);
  at.listen.call.close();
  await at.listen.reply;
});

// P-012
test('a stream that is closed is asked about no more', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  point.reply = () => undefined;
  await using at = await placeOfMany(point, 48);
  await point.until(() => (point.asked.length === 8 ? true : undefined));
  at.listen.call.close();
  await at.listen.reply;
  await point.until(() => (point.givenUp === 8 ? true : undefined));
  assert.equal(point.asked.length, 8);
  assert.equal(at.memory.requests('resources/subscribe').length, 0);
});

// P-012
test('a resource that the policy denies while it is asked about is not subscribed to', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const held = Promise.withResolvers<void>();
  point.reply = (response, question) => void held.promise.then(() => ALLOW(response, question));
  await using at = await placeOfMany(point, 1);
  await point.until(() => point.asked[0]);
  await change(at.gateway, accessOf({}, []));
  held.resolve();
  await at.listen.reply;
  assert.equal(at.memory.requests('resources/subscribe').length, 0);
});

// P-012
test('a request for a task is asked about, and a denied task is unknown', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { access: accessWith(point) });
  const client = await gateway.connect({ principal: ADA });
  const created = await client.result('tools/call', { ...toolCall('up__job'), task: { ttl: 60_000 } });
  const { taskId } = Object(created['task']);
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
  const polls = memory.requests('tasks/get').length;
  point.reply = DENY;
  const { answer: invented } = await client.request('tasks/get', { taskId: 'invented' });
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel'])
    assert.deepEqual((await client.request(method, { taskId })).answer, invented, method);
  const asked = point.asked.length;
  await client.result('tasks/list');
  assert.equal(point.asked.length, asked, 'a list is not asked about');
  assert.equal(memory.requests('tasks/get').length, polls + 1, 'that of the list');
  assert.deepEqual(
    point.asked.map(({ action, resource }) => [action.name, resource.id]),
    ['tools/call', 'tasks/get', 'tasks/get', 'tasks/result', 'tasks/cancel'].map((name) => [name, 'up/job']),
  );
});

// P-012
test('a followed task is asked about once, not for each of its states', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } }, { access: accessWith(point) });
  const options = { principal: ADA, capabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } };
  const called = await modernRequest(gateway, 'tools/call', toolCall('up__job'), options).reply;
  const taskId = called.result?.['taskId'];
  const listen = modernRequest(gateway, 'subscriptions/listen', { notifications: { taskIds: [taskId] } }, options);
  await waitUntil(() => listen.messages.length > 0);
  assert.match(JSON.stringify(listen.messages), /acknowledged/);
  const names = () => point.asked.map(({ action }) => action.name);
  assert.deepEqual(names(), ['tools/call', 'subscriptions/listen']);
  const [task] = tasks;
  assert.ok(task !== undefined);
  task.status = 'completed';
  task.result = { content: [] };
  const changed = JSON.stringify({ taskId: task.id, status: 'completed' });
  for (const peer of memory.open) peer.send(`{"jsonrpc":"2.0","method":"notifications/tasks","params":${changed}}`);
  await waitUntil(() => listen.messages.length > 1);
  assert.match(JSON.stringify(listen.messages[1]), /notifications\/tasks/);
  assert.equal(names().length, 2, 'the gateway reads the state for itself');
  point.reply = DENY;
  const { error } = await modernRequest(gateway, 'tasks/cancel', { taskId }, options).reply;
  assert.match(error?.message ?? '', /^Unknown task/);
  listen.call.close();
  await listen.reply;
});

// P-012
test('the retry of a parked call is asked about', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  await using gateway = await testCore({ up: { memory: askingUpstream() } }, { access: accessWith(point) });
  const options = { principal: ADA, capabilities: { elicitation: { form: {} } } };
  const retry = await parkedAsk(gateway, options);
  const ask = () => modernRequest(gateway, 'tools/call', retry, options).reply;
  point.reply = DENY;
  assert.match((await ask()).error?.message ?? '', /^Unknown tool/);
  point.reply = replyWith(500, '');
  const { error } = await ask();
  assert.partialDeepStrictEqual(error?.data, { code: 'access-unavailable', executed: 'unknown' });
  assert.doesNotMatch(error?.message ?? '', /Nothing was sent/);
  const held = Promise.withResolvers<void>();
  point.reply = (response, about) => void held.promise.then(() => ALLOW(response, about));
  const asking = ask();
  await point.until(() => point.asked[3]);
  await change(gateway, accessOf({}, []));
  held.resolve();
  assert.match((await asking).error?.message ?? '', /^Unknown tool/, 'the rules deny it by now');
  await change(gateway, accessWith(point));
  point.reply = ALLOW;
  assert.equal((await ask()).error, undefined);
  assert.equal(point.asked.length, 5);
});

// P-012
test('a request that is passed on to another process is asked about once', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const processes = new JoinedProcesses();
  const [here, there] = [upstream(), upstream()];
  const start = (memory: ReturnType<typeof upstream>) =>
    testCore({ up: { memory, isolation: 'principal' } }, { access: accessWith(point) }, processes);
  await using first = await start(here);
  await using second = await start(there);
  const call = (gateway: TestCore) =>
    modernRequest(gateway, 'tools/call', toolCall('up__get'), { principal: ADA }).reply;
  assert.equal((await call(first)).error, undefined);
  assert.equal((await call(second)).error, undefined);
  assert.deepEqual([here.requests('tools/call').length, there.requests('tools/call').length], [2, 0]);
  assert.equal(point.asked.length, 2);
  const notifications = { resourceSubscriptions: ['up+test://a'] };
  const listen = modernRequest(second, 'subscriptions/listen', { notifications }, { principal: ADA });
  await waitUntil(() => listen.messages.length > 0);
  assert.match(JSON.stringify(listen.messages.map((one) => 'params' in one && one.params?.toString())), /test:\/\/a/);
  assert.equal(point.asked.length, 3);
  listen.call.close();
  await listen.reply;
});

// P-012
test('a passed on stream acknowledges in time what is decided by then', TIMEOUT, async () => {
  await using point = await startDecisionPoint({ timeoutMs: 5_000 });
  const processes = new JoinedProcesses();
  const uris = Array.from({ length: 20 }, (_, at) => `test://${at}`);
  const start = () => {
    const memory = memoryUpstream({
      capabilities: { tools: {}, resources: { subscribe: true } },
      lists: {
        tools: [{ name: 'get', inputSchema: { type: 'object' } }],
        resources: uris.map((uri) => ({ uri, name: uri })),
      },
      request: (peer, request) => peer.send(result(request, {})),
    });
    return testCore({ up: { memory, isolation: 'principal' } }, { access: accessWith(point) }, processes);
  };
  await using first = await start();
  await using second = await start();
  const called = await modernRequest(first, 'tools/call', toolCall('up__get'), { principal: ADA }).reply;
  assert.equal(called.error, undefined);
  point.reply = (response, question) => {
    if (question.resource.id === uris[1]) ALLOW(response, question);
  };
  const notifications = { resourceSubscriptions: uris.map((uri) => `up+${uri}`) };
  const listen = modernRequest(second, 'subscriptions/listen', { notifications }, { principal: ADA });
  await waitUntil(() => listen.messages.length > 0);
  const [acknowledged] = listen.messages;
  assert.ok(acknowledged?.kind === 'notification');
  assert.deepEqual(acknowledged.params?.toString().match(/up\+[^"]*/g), [`up+${uris[1]}`]);
  assert.equal(point.asked.length, 1 + 9);
  listen.call.close();
  await listen.reply;
});

// P-012
test('a request of a process without a decision point is asked about where it goes', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const processes = new JoinedProcesses();
  const [here, there] = [upstream(), upstream()];
  const start = (memory: ReturnType<typeof upstream>, access: Config['access']) =>
    testCore({ up: { memory, isolation: 'principal' } }, { access }, processes);
  await using first = await start(here, accessWith(point));
  await using second = await start(there, accessOf(ROLES, GRANTS));
  const call = (gateway: TestCore) =>
    modernRequest(gateway, 'tools/call', toolCall('up__get'), { principal: ADA }).reply;
  assert.equal((await call(first)).error, undefined);
  point.reply = DENY;
  assert.match((await call(second)).error?.message ?? '', /^Unknown tool/);
  assert.equal(point.asked.length, 2);
  assert.equal(here.requests('tools/call').length, 1);
});

// P-012
test('a request is asked about again where its name leads to another item', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const processes = new JoinedProcesses();
  const [here, there] = [upstream(), upstream()];
  const start = (memory: ReturnType<typeof upstream>, renames: Readonly<Record<string, string>>) => {
    const profile = { id: 'p', upstreams: ['up'], includeTools: undefined, excludeTools: [], renames };
    const more = { access: accessWith(point), profiles: [profile] };
    return testCore({ up: { memory, isolation: 'principal' } }, more, processes);
  };
  await using first = await start(here, { up__get: 'do' });
  await using second = await start(there, { up__put: 'do' });
  const call = (gateway: TestCore) =>
    modernRequest(gateway, 'tools/call', toolCall('do'), { principal: ADA, view: 'p' }).reply;
  assert.equal((await call(first)).error, undefined);
  point.reply = (response, question) => (question.resource.id === 'up/get' ? DENY : ALLOW)(response, question);
  assert.match((await call(second)).error?.message ?? '', /^Unknown tool/);
  assert.deepEqual(
    point.asked.map(({ resource }) => resource.id),
    ['up/get', 'up/put', 'up/get'],
  );
  assert.deepEqual([here.requests('tools/call').length, there.requests('tools/call').length], [1, 0]);
});

// P-012
test('the question says who asks for what, and has no credentials', TIMEOUT, async () => {
  await using point = await startDecisionPoint();
  const claims = { claims: [{ name: 'dept', path: 'org.dept', type: 'string' }] } as const;
  const access = { ...accessOf(ROLES, GRANTS, claims), external: point.config };
  await using gateway = await testCore({ up: { memory: upstream() } }, { access });
  const principal = tokenOf('ada', { org: { dept: 'r&d' }, jti: 'secret-id' }, ['mcp']);
  await modernRequest(gateway, 'tools/call', toolCall('get'), { principal, view: 'up' }).reply;
  const [question] = point.asked;
  const { time, ...context } = question?.context ?? {};
  assert.ok(typeof time === 'string' && !Number.isNaN(Date.parse(time)));
  assert.deepEqual(
    { ...question, context },
    {
      subject: {
        type: 'user',
        id: 'ada',
        properties: {
          issuer: 'https://issuer.test',
          clientId: 'app',
          groups: [],
          scopes: ['mcp'],
          claims: { dept: 'r&d' },
        },
      },
      action: { name: 'tools/call' },
      resource: {
        type: 'tool',
        id: 'up/get',
        properties: {
          upstream: 'up',
          name: 'get',
          hints: { readOnly: true, destructive: true, idempotent: false, openWorld: true },
        },
      },
      context: { endpoint: '/mcp/up' },
    },
  );
});

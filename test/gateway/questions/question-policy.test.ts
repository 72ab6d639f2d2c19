import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClientFeature } from '../../../src/config/values/upstream-config.ts';
import { RawObject } from '../../../src/json/json.ts';
import { SamplingBudget } from '../../../src/gateway/questions/sampling-budget.ts';
import { LIMITS } from '../../../src/limits.ts';
import { usableCapabilities } from '../../../src/upstream/link/usable-capabilities.ts';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../../support/modern-client.ts';
import { asker } from '../../support/asker.ts';

const TIMEOUT = { timeout: 120_000 };

const SAMPLING = { messages: [{ role: 'user', content: { type: 'text', text: 'hi' } }], maxTokens: 9 };
const FORM = { message: 'Who?', requestedSchema: { type: 'object', properties: {} } };
const principalNamed = (name: string) => ({ key: name, label: name, scopes: [] });
const EVERYTHING = { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };

const DECLARED = {
  ...EVERYTHING,
  tasks: { list: {}, requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
};

const declarations: readonly (readonly [features: readonly ClientFeature[], declared: object])[] = [
  [['elicitation', 'roots', 'sampling'], DECLARED],
  [
    ['elicitation', 'roots'],
    {
      elicitation: DECLARED.elicitation,
      roots: DECLARED.roots,
      tasks: { list: {}, requests: { elicitation: { create: {} } } },
    },
  ],
  [['roots'], { roots: DECLARED.roots, tasks: { list: {}, requests: {} } }],
  [[], { tasks: { list: {}, requests: {} } }],
];

for (const [features, declared] of declarations) {
  // N-28
  test(`an upstream that may use ${features.join(', ') || 'nothing'} gets no other capabilities`, () => {
    assert.deepEqual(JSON.parse(usableCapabilities(RawObject.of(DECLARED), features).toString()), declared);
  });
}

/** An upstream that asks this during each call, and answers the call with the response. */
function asking(method: string, params: object): MemoryUpstream {
  return memoryUpstream({
    lists: { tools: [{ name: 'ask', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      const question = { jsonrpc: '2.0', id: 'q', method, params };
      peer.send(JSON.stringify(question), Number(request.id));
    },
    response: (peer, response) => {
      const call = peer.received.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
      const got = response.kind === 'result' ? JSON.parse(response.result) : response.error;
      if (call?.kind === 'request') peer.send(result(call, { got }));
    },
  });
}

/** Calls the tool; returns the parameters of the questions that the client got, and the response that the upstream got. */
async function call(client: TestClient, reply: object) {
  const asked: unknown[] = [];
  const { answer } = await client.request('tools/call', toolCall('up__ask'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      asked.push(JSON.parse(message.params?.toString() ?? '{}'));
      client.answer(message.id, reply);
    },
  });
  assert.ok(answer.kind === 'result', JSON.stringify(answer));
  return { asked, got: RawObject.parse(answer.result).value('got') };
}

const refusals = [
  { method: 'sampling/createMessage', params: SAMPLING, clientFeatures: ['elicitation', 'roots'], feature: 'sampling' },
  { method: 'elicitation/create', params: FORM, clientFeatures: ['sampling'], feature: 'elicitation' },
  { method: 'roots/list', params: {}, clientFeatures: [], feature: 'roots' },
] as const;

for (const { method, params, clientFeatures, feature } of refusals) {
  // SEC-37 N-28
  test(`${method} without ${feature} is counted, and reaches no client`, TIMEOUT, async () => {
    const memory = asking(method, params);
    await using gateway = await testCore({ up: { memory, clientFeatures } });
    const { asked, got } = await call(await gateway.connect({ capabilities: EVERYTHING }), {});
    assert.deepEqual(asked, []);
    assert.partialDeepStrictEqual(got, { code: -32602 });
    assert.match(JSON.stringify(got), new RegExp(`may not use ${feature}.*clientFeatures`));
    assert.match(await gateway.metrics.text(), new RegExp(`questions_refused_total\\{reason="${feature}"\\} 1`));
    const declared = memory.peers.map(({ capabilities }) => Object.keys(JSON.parse(capabilities.toString())));
    assert.ok(!declared.flat().includes(feature));
  });
}

const LOOKALIKES = [
  { method: 'elicitation/create', params: { ...FORM, Mode: 'url', url: 'https://example.org/' } },
  { method: 'elicitation/create', params: { ...FORM, mode: 'form', URL: 'javascript:alert(1)' } },
  { method: 'elicitation/create', params: { ...FORM, Message: 'hidden' } },
  { method: 'sampling/createMessage', params: { ...SAMPLING, MaxTokens: 1e9 } },
  { method: 'sampling/createMessage', params: { ...SAMPLING, maxToKens: 1e9 } },
  { method: 'sampling/createMessage', params: { ...SAMPLING, IncludeContext: 'allServers' } },
];

for (const { method, params } of LOOKALIKES) {
  const odd = Object.keys(params).at(-1) === 'url' ? 'Mode' : Object.keys(params).at(-1);
  const reason = new RegExp(`a member \\\\?"${odd}\\\\?" that could be mistaken`);

  // SEC-37 SEC-38
  test(`${method} with ${odd} too reaches no client`, TIMEOUT, async () => {
    const memory = asking(method, params);
    await using gateway = await testCore({ up: { memory } });
    const { asked, got } = await call(await gateway.connect({ capabilities: EVERYTHING }), {});
    assert.deepEqual(asked, []);
    assert.match(JSON.stringify(got), reason);
  });

  // SEC-29 SEC-37 SEC-38
  test(`${method} with ${odd} in a result reaches no client`, TIMEOUT, async () => {
    const memory = memoryUpstream({
      isRaw: true,
      lists: { tools: [{ name: 'ask', inputSchema: { type: 'object' } }] },
      request: (peer, request) => {
        const questions = { resultType: 'input_required', inputRequests: { q: { method, params } } };
        const discovered = { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
        const complete = { resultType: 'complete', ttlMs: 0, cacheScope: 'private', ...discovered };
        peer.send(result(request, request.method === 'server/discover' ? complete : questions));
      },
    });
    await using gateway = await testCore({ up: { memory, era: 'modern' } });
    const { error } = await modernRequest(gateway, 'tools/call', toolCall('up__ask'), { capabilities: EVERYTHING })
      .reply;
    assert.match(error?.message ?? '', reason);
  });
}

// SEC-37 SEC-38
test('no result or task of a legacy server has what clients could take for questions', TIMEOUT, async () => {
  const questions = { q: { method: 'elicitation/create', params: FORM } };
  const odd = { ResultType: 'input_required', InputRequests: questions, INPUTREQUESTS: questions, requestſtate: 's' };
  const state = { taskId: 't', status: 'working', createdAt: '', lastUpdatedAt: '', ttl: 60_000, ...odd };
  const inputSchema = { type: 'object' };
  const job = { name: 'job', inputSchema, execution: { taskSupport: 'required' } };
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'plain', inputSchema }, job] },
    request: (peer, request) => {
      const isCall = request.method === 'tools/call';
      const isJob = isCall && request.params?.string('name') === 'job';
      peer.send(result(request, isJob ? { task: state } : isCall ? { content: [], kept: 1, ...odd } : state));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, { ...EVERYTHING, extensions: { 'io.modelcontextprotocol/tasks': {} } });
  const plain = await client.result('tools/call', toolCall('up__plain'));
  assert.deepEqual(Object.keys(plain), ['content', 'kept', 'resultType', '_meta']);
  const created = await client.result('tools/call', toolCall('up__job'));
  const polled = await client.result('tasks/get', { taskId: created['taskId'] });
  for (const { status, ...rest } of [created, polled]) {
    assert.equal(status, 'working');
    assert.deepEqual(
      Object.keys(odd).filter((name) => name in rest),
      [],
    );
  }
});

// N-28
test('changed roots are not announced to an upstream that may not use them', TIMEOUT, async () => {
  const memory = asking('elicitation/create', FORM);
  await using gateway = await testCore({ up: { memory, clientFeatures: ['elicitation'] } });
  const client = await gateway.connect({ capabilities: EVERYTHING });
  await call(client, { action: 'decline' });
  client.notify('notifications/roots/list_changed');
  await call(client, { action: 'decline' });
  const methods = memory.peers.flatMap(({ received }) => received.map((m) => ('method' in m ? m.method : '')));
  assert.ok(!methods.includes('notifications/roots/list_changed'));
});

// N-28
test('a client of 2026-07-28 is not asked for a feature that the upstream may not use', TIMEOUT, async () => {
  const upstream = asker({ isAttributed: true, isQuiet: true });
  await using gateway = await testCore({ up: { memory: upstream.memory, clientFeatures: ['roots'] } });
  const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), {
    capabilities: { sampling: {} },
  });
  await upstream.memory.until(() => upstream.calls.get('n'));
  upstream.ask('n', 'q', 'sampling/createMessage', SAMPLING);
  await upstream.memory.until(() => upstream.call('n').answers.get('q'));
  upstream.finish('n');
  assert.match(JSON.stringify((await reply).result), /may not use sampling/);
});

// SEC-37
test('limit samplingTokens: a larger maxTokens is capped and counted', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { ...SAMPLING, maxTokens: 1e8 });
  await using gateway = await testCore({ up: { memory } });
  const { asked } = await call(await gateway.connect({ capabilities: { sampling: {} } }), { role: 'assistant' });
  assert.partialDeepStrictEqual(asked, [{ maxTokens: LIMITS.samplingTokens }]);
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="samplingTokens"\} 1/);
});

// SEC-37
test('beyond its budget an upstream gets no answers of models', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { ...SAMPLING, maxTokens: 40 });
  await using gateway = await testCore({ up: { memory, samplingBudget: 100 } });
  const [ann, bob] = await Promise.all(
    ['ann', 'bob'].map((name) => gateway.connect({ capabilities: { sampling: {} }, principal: principalNamed(name) })),
  );
  assert.ok(ann !== undefined && bob !== undefined);
  const asked = async (client: TestClient) => (await call(client, { role: 'assistant' })).asked.length;
  assert.deepEqual([await asked(ann), await asked(ann), await asked(ann)], [1, 1, 0]);
  assert.equal(await asked(bob), 1, 'each principal has a budget');
  const { got } = await call(ann, { role: 'assistant' });
  assert.match(JSON.stringify(got), /asks for 40 tokens, and 20 of its samplingBudget \(100 in an hour\) are left/);
  assert.match(await gateway.metrics.text(), /questions_refused_total\{reason="budget"\} 2/);
});

// SEC-37
test('limit samplingBudgets: the pair that was asked least recently begins again', () => {
  const limits: string[] = [];
  const budget = new SamplingBudget((limit) => limits.push(limit));
  const take = (name: string, tokens: number) => budget.take('up', principalNamed(name), tokens, 10);
  for (let at = 0; at < LIMITS.samplingBudgets; at++) assert.equal(take(`p${at}`, 10), undefined);
  assert.deepEqual(take(`p${LIMITS.samplingBudgets - 1}`, 1), { left: 0, isNew: true });
  assert.deepEqual(limits, []);
  assert.equal(take('another', 10), undefined);
  assert.deepEqual(limits, ['samplingBudgets']);
  assert.equal(take('p0', 10), undefined);
});

// SEC-37
test('a question of a task that is read again counts once', () => {
  const budget = new SamplingBudget(() => undefined);
  const take = (question: string) => budget.take('up', principalNamed('ann'), 6, 10, { name: question, content: '' });
  assert.deepEqual([take('a'), take('a')], [undefined, undefined]);
  assert.deepEqual(
    [take('b'), take('b')],
    [
      { left: 4, isNew: true },
      { left: 4, isNew: false },
    ],
  );
  assert.equal(take('a'), undefined);
});

// SEC-37
test('a question that its client cannot be asked takes nothing of the budget', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { ...SAMPLING, maxTokens: 40 });
  await using gateway = await testCore({ up: { memory, samplingBudget: 40 } });
  const plain = await gateway.connect({ capabilities: { roots: {} } });
  assert.deepEqual((await call(plain, {})).asked, []);
  const able = await gateway.connect({ capabilities: { sampling: {} } });
  assert.equal((await call(able, { role: 'assistant' })).asked.length, 1);
});

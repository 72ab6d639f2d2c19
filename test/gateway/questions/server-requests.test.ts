import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { asker } from '../../support/asker.ts';
import { errorText } from '../../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../../support/modern-client.ts';
import { samplingWithLink } from '../../support/sampling.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };

/** An upstream that asks this question during each call, and answers the call with the response. @param params or their text. */
function asking(method: string, params: object | string, revision?: string): MemoryUpstream {
  return memoryUpstream({
    ...(revision === undefined ? {} : { revision }),
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      const text = typeof params === 'string' ? params : JSON.stringify(params);
      peer.send(`{"jsonrpc":"2.0","id":"q","method":"${method}","params":${text}}`, Number(request.id));
    },
    response: (peer, response) => {
      const call = peer.received.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
      const got = response.kind === 'result' ? JSON.parse(response.result) : response.error;
      if (call?.kind === 'request') peer.send(result(call, { got }));
    },
  });
}

/** Calls the tool. Returns the question that the client got and the response that the upstream got. */
async function exchange(client: TestClient, reply: object) {
  const asked: Request[] = [];
  const { answer } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      asked.push(message);
      client.answer(message.id, reply);
    },
  });
  assert.ok(answer.kind === 'result', JSON.stringify(answer));
  return { asked, got: RawObject.parse(answer.result).value('got') };
}

const IMAGE = { type: 'image', data: 'aGk=', mimeType: 'image/png' };

test('sampling and its answer pass unchanged', TIMEOUT, async () => {
  const params = {
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }, IMAGE] }],
    maxTokens: 9,
    tools: [{ name: 't', inputSchema: { type: 'object' } }],
    includeContext: 'thisServer',
    unheard: { of: [1.0] },
  };
  await using gateway = await testCore({ up: { memory: asking('sampling/createMessage', params) } });
  const client = await gateway.connect({ capabilities: { sampling: { tools: {}, context: {} } } });
  const reply = { role: 'assistant', content: [{ type: 'text', text: 'ho' }], model: 'm', stopReason: 'endTurn' };
  const { asked, got } = await exchange(client, reply);
  assert.deepEqual(JSON.parse(asked[0]?.params?.toString() ?? ''), params);
  assert.deepEqual(got, reply);
});

const SAMPLING_TOOLS = { capabilities: { sampling: { tools: {} } } };

// M-016 SEC-35
test('a link in sampling leads to its own upstream, as in a result', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', samplingWithLink('other+file:///secret'));
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const { asked } = await exchange(await gateway.connect(SAMPLING_TOOLS), {});
  assert.deepEqual(JSON.parse(String(asked[0]?.params)), samplingWithLink('up+other+file:///secret'));
});

// M-016 SEC-35
test('a link in sampling leads to its own upstream for a modern client too', TIMEOUT, async () => {
  const upstream = asker({ isAttributed: true, isQuiet: true });
  await using gateway = await testCore({ up: { memory: upstream.memory }, other: { memory: memoryUpstream({}) } });
  const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), SAMPLING_TOOLS);
  await upstream.memory.until(() => upstream.calls.get('n'));
  upstream.ask('n', 'q', 'sampling/createMessage', samplingWithLink('other+file:///secret'));
  const [question] = Object.values(inputRequiredIn(await reply).inputRequests);
  assert.deepEqual(question?.params, samplingWithLink('up+other+file:///secret'));
});

// M-016
test('sampling whose links cannot be read is refused', TIMEOUT, async () => {
  const params = JSON.stringify(samplingWithLink('x:1')).replace('"uri":', '"uri":"x:2","uri":');
  await using gateway = await testCore({ up: { memory: asking('sampling/createMessage', params) } });
  const { asked, got } = await exchange(await gateway.connect(SAMPLING_TOOLS), {});
  assert.deepEqual(asked, []);
  assert.partialDeepStrictEqual(got, { code: -32602 });
});

//
test('sampling with tools is refused for a client without that capability', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1, tools: [] });
  await using gateway = await testCore({ up: { memory } });
  const { asked, got } = await exchange(await gateway.connect({ capabilities: { sampling: {} } }), {});
  assert.deepEqual(asked, []);
  assert.partialDeepStrictEqual(got, { code: -32602 });
});

const UNDECLARED = [
  { method: 'roots/list', params: {}, capabilities: { elicitation: {} }, code: -32601 },
  { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 }, capabilities: {}, code: -32601 },
  {
    method: 'elicitation/create',
    params: { message: 'Who?' },
    capabilities: { elicitation: { url: {} } },
    code: -32602,
  },
];

for (const { method, params, capabilities, code } of UNDECLARED) {
  test(`${method} that the client has not declared gets ${code}, as from the client`, TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: asking(method, params) } });
    const { asked, got } = await exchange(await gateway.connect({ capabilities }), {});
    assert.deepEqual(asked, []);
    assert.partialDeepStrictEqual(got, { code });
  });
}

test('sampling of many blocks beside a large member reaches an older client', TIMEOUT, async () => {
  const content = Array.from({ length: 100_000 }, () => 0);
  const message = { role: 'user', content, x: 'x'.repeat(8_000_000) };
  const memory = asking('sampling/createMessage', { messages: [message], maxTokens: 1 });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ revision: '2025-06-18', capabilities: { sampling: {} } });
  const { asked } = await exchange(client, { role: 'assistant', content: { type: 'text', text: 'ho' }, model: 'm' });
  assert.ok((asked[0]?.params?.toString().length ?? 0) > 8_000_000);
});

//
test('an older client gets sampling messages with one content each', TIMEOUT, async () => {
  const content = [{ type: 'text', text: 'hi' }, IMAGE];
  const memory = asking('sampling/createMessage', { messages: [{ role: 'user', content }], maxTokens: 1 });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ revision: '2025-06-18', capabilities: { sampling: {} } });
  const { asked } = await exchange(client, { role: 'assistant', content: { type: 'text', text: 'ho' }, model: 'm' });
  const messages = asked[0]?.params?.value('messages');
  assert.deepEqual(
    messages,
    content.map((one) => ({ role: 'user', content: one })),
  );
});

const [HI, HO] = [
  { type: 'text', text: 'hi' },
  { type: 'text', text: 'ho' },
];
const OLDER_ANSWERS = [
  { revision: '2025-06-18', content: [HI], expected: { content: HI } },
  { revision: '2025-06-18', content: [HI, HO], expected: { content: { type: 'text', text: 'hi\nho' } } },
  { revision: '2025-06-18', content: [HI, IMAGE], expected: { code: -32602 } },
  { revision: '2025-06-18', content: IMAGE, expected: { content: IMAGE } },
  { revision: '2025-11-25', content: [HI, IMAGE], expected: { content: [HI, IMAGE] } },
];

for (const { revision, content, expected } of OLDER_ANSWERS) {
  const named = [content].flat().map(({ type }) => type);
  const reply = { role: 'assistant', content, model: 'm' };
  const sampling = { messages: [], maxTokens: 1 };

  //
  test(`an upstream of ${revision} gets sampled ${named.join(' and ')} in its own form`, TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: asking('sampling/createMessage', sampling, revision) } });
    const { got } = await exchange(await gateway.connect({ capabilities: { sampling: {} } }), reply);
    assert.partialDeepStrictEqual(got, expected);
  });

  //
  test(
    `an upstream of ${revision} gets ${named.join(' and ')} of a modern client in its own form`,
    TIMEOUT,
    async () => {
      const upstream = asker({ isAttributed: true, isQuiet: true, script: { revision } });
      await using gateway = await testCore({ up: { memory: upstream.memory } });
      const call = (retry: object) => {
        const params = { ...toolCall('up__ask', { nonce: 'n' }), ...retry };
        return modernRequest(gateway, 'tools/call', params, { capabilities: { sampling: {} } }).reply;
      };
      const asked = call({});
      await upstream.memory.until(() => upstream.calls.get('n'));
      upstream.ask('n', 'q', 'sampling/createMessage', sampling);
      const { inputRequests, requestState } = inputRequiredIn(await asked);
      const [key = ''] = Object.keys(inputRequests);
      const answered = call({ requestState, inputResponses: { [key]: reply } });
      const [got] = await upstream.memory.until(() => upstream.call('n').answers.get('q'));
      assert.partialDeepStrictEqual(got, 'code' in expected ? { error: expected } : expected);
      upstream.finish('n');
      await answered;
    },
  );
}

test('context for this server does not include other upstreams of the endpoint', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1, includeContext: 'thisServer' });
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const { asked } = await exchange(await gateway.connect({ capabilities: { sampling: { context: {} } } }), {});
  assert.equal(asked[0]?.params?.string('includeContext'), 'none');
});

for (const { revision, sampling, context } of [
  { revision: '2025-11-25', sampling: {}, context: 'none' },
  { revision: '2025-11-25', sampling: { context: {} }, context: 'thisServer' },
  { revision: '2025-06-18', sampling: {}, context: 'thisServer' },
] as const) {
  const declared = JSON.stringify(sampling);
  test(`a client of ${revision} with the sampling ${declared} is asked for ${context}`, TIMEOUT, async () => {
    const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1, includeContext: 'thisServer' });
    await using gateway = await testCore({ up: { memory } });
    const { asked } = await exchange(await gateway.connect({ revision, capabilities: { sampling } }), {});
    assert.equal(asked[0]?.params?.string('includeContext'), context);
  });
}

test('roots come from the client, and their changes go to its own connections', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory } });
  const roots = [{ uri: 'file:///home', name: 'home' }];
  const client = await gateway.connect({ capabilities: { roots: { listChanged: true } } });
  const other = await gateway.connect({ capabilities: { roots: { listChanged: true } } });
  assert.deepEqual((await exchange(client, { roots })).got, { roots });
  await exchange(other, { roots: [] });
  client.notify('notifications/roots/list_changed');
  const got = () =>
    memory.peers.filter((peer) =>
      peer.received.some((m) => m.kind === 'notification' && m.method === 'notifications/roots/list_changed'),
    );
  await memory.until(() => got()[0]);
  await exchange(other, { roots: [] });
  assert.equal(got().length, 1);
});

// L-003
test('changed roots of a client that did not declare them are not forwarded', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  await exchange(client, { roots: [] });
  client.notify('notifications/roots/list_changed');
  await exchange(client, { roots: [] });
  const got = memory.peers.flatMap(({ received }) => received.map((m) => ('method' in m ? m.method : '')));
  assert.ok(!got.includes('notifications/roots/list_changed'));
});

//
test('equal elicitation ids of two upstreams are distinct for the client', TIMEOUT, async () => {
  const params = { mode: 'url', message: 'Sign in', url: 'https://example.com/', elicitationId: 'e1' };
  const memory = asking('elicitation/create', params);
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const capabilities = { elicitation: { url: {} } };
  const [client, other] = [await gateway.connect({ capabilities }), await gateway.connect({ capabilities })];
  const { asked } = await exchange(client, { action: 'accept' });
  const mine = memory.peers.at(-1);
  await exchange(other, { action: 'accept' });
  assert.equal(asked[0]?.params?.string('elicitationId'), 'up:e1');
  mine?.send('{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e1"}}');
  const complete = await client.waitForMessage('notifications/elicitation/complete');
  assert.ok(complete.kind === 'notification');
  assert.equal(complete.params?.string('elicitationId'), 'up:e1');
  // A list may have been read after it began.
  assert.ok(other.listened.every((each) => 'method' in each && each.method === 'notifications/tools/list_changed'));
});

// SEC-38
test('−32042 has the name of the upstream, and the ids of later completions', TIMEOUT, async () => {
  const elicitation = { mode: 'url', elicitationId: 'e1', url: 'https://example.com/', message: 'Sign in' };
  const error = { code: -32042, message: 'Sign in first', data: { elicitations: [elicitation], more: true } };
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}`),
  });
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const merged = await gateway.connect({ capabilities: { elicitation: { url: {} } } });
  const alone = await gateway.connect({ capabilities: { elicitation: { url: {} } }, view: 'up' });
  const named = { ...elicitation, message: '[up] Sign in', elicitationId: 'up:e1' };
  const mapped = { ...error, data: { ...error.data, elicitations: [named] } };
  assert.deepEqual((await merged.request('tools/call', toolCall('up__echo'))).answer, { kind: 'error', error: mapped });
  assert.deepEqual((await alone.request('tools/call', toolCall('echo'))).answer, { kind: 'error', error });
});

test('progress of an elicitation has the upstream’s own token', TIMEOUT, async () => {
  const params = {
    message: '?',
    requestedSchema: { type: 'object', properties: {} },
    _meta: { progressToken: 'theirs' },
  };
  const memory = asking('elicitation/create', params);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const call = client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      const token = message.params?.object('_meta')?.value('progressToken');
      assert.notEqual(token, 'theirs');
      // Some clients make texts of ids.
      client.notify('notifications/progress', { progressToken: String(token), progress: 1 });
      client.answer(`"${message.id}"`, { action: 'cancel' });
    },
  });
  await call;
  const received = memory.peers.flatMap((peer) => peer.received);
  const progress = received.find((m) => m.kind === 'notification' && m.method === 'notifications/progress');
  assert.ok(progress?.kind === 'notification');
  assert.equal(progress.params?.toString(), '{"progressToken":"theirs","progress":1}');
});

test('a question that the upstream withdraws is cancelled at the client, by its id', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      peer.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
      peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}');
      peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  const { messages } = await client.request('tools/call', toolCall('up__echo'));
  const [question, cancelled] = messages;
  assert.ok(question?.kind === 'request' && cancelled?.kind === 'notification');
  assert.equal(cancelled.method, 'notifications/cancelled');
  assert.equal(cancelled.params?.raw('requestId'), question.id);
});

// M-027
test('the reason and further members of a withdrawn question reach the client', TIMEOUT, async () => {
  const meta = { 'com.example/x': 1 };
  const theirs = { 'io.modelcontextprotocol/related-task': { taskId: 'theirs' } };
  const params = { requestId: 'q', x: 1, reason: 'disk\u202e full', _meta: { ...meta, ...theirs } };
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      peer.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
      peer.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params }));
      peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  const { messages } = await client.request('tools/call', toolCall('up__echo'));
  const [question, cancelled] = messages;
  assert.ok(question?.kind === 'request' && cancelled?.kind === 'notification');
  const got: unknown = JSON.parse(String(cancelled.params));
  assert.deepEqual(got, { requestId: JSON.parse(question.id), x: 1, reason: 'disk full', _meta: meta });
});

// M-027
test('all members of a cancellation and of changed roots reach the upstream', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [ECHO] }, request: () => undefined });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: { listChanged: true } } });
  const call = client.send('tools/call', toolCall('up__echo'), { id: '7' });
  const got = (method: string) =>
    memory.until(() =>
      memory.peers
        .flatMap(({ received }) => received)
        .find((one) => one.kind !== 'result' && one.kind !== 'error' && one.method === method),
    );
  const called = await got('tools/call');
  const meta = { 'com.example/x': 1 };
  client.notify('notifications/roots/list_changed', { x: 1, _meta: meta });
  client.notify('notifications/cancelled', { requestId: 7, x: 1, reason: 'enough', _meta: meta });
  await call;
  const [roots, cancelled] = [await got('notifications/roots/list_changed'), await got('notifications/cancelled')];
  assert.ok('params' in roots && 'params' in cancelled && 'id' in called);
  assert.deepEqual(JSON.parse(String(roots.params)), { x: 1, _meta: meta });
  const params = { requestId: Number(called.id), x: 1, reason: 'enough', _meta: meta };
  assert.deepEqual(JSON.parse(String(cancelled.params)), params);
});

const ENDS: readonly (readonly [string, (peer: Peer, request: Request) => void])[] = [
  [
    'is lost',
    (peer, { id }) => peer.fail(id, new GatewayError('upstream-lost', { upstream: 'up', message: 'the stream broke' })),
  ],
  ['fails', (peer, { id }) => peer.send(errorText(Number(id), { code: -32_603, message: 'The server was restarted' }))],
];

for (const [how, end] of ENDS) {
  test(`a question of a call that ${how} is cancelled at the client, and refused`, TIMEOUT, async () => {
    const memory = memoryUpstream({
      lists: { tools: [ECHO] },
      request: (peer, request) => {
        peer.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}', Number(request.id));
        end(peer, request);
      },
    });
    await using gateway = await testCore({ up: { memory } });
    const client = await gateway.connect({ capabilities: { roots: {} } });
    const { messages, answer } = await client.request('tools/call', toolCall('up__echo'));
    assert.equal(answer.kind, 'error');
    const [question, cancelled] = messages;
    assert.ok(question?.kind === 'request' && cancelled?.kind === 'notification');
    assert.equal(cancelled.method, 'notifications/cancelled');
    assert.equal(cancelled.params?.raw('requestId'), question.id);
    const got = await memory.until(() =>
      memory.peers.flatMap(({ received }) => received).find((one) => 'id' in one && one.id === '"q"'),
    );
    assert.equal(got.kind, 'error');
  });
}

test('an upstream gets an answer when the asked session ends', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  const asked = Promise.withResolvers<void>();
  const call = client.request('tools/call', toolCall('up__echo'), { onMessage: () => asked.resolve() });
  await asked.promise;
  await gateway.core.gateway.endSession(client.session);
  const answer = await memory.until(() =>
    memory.peers.flatMap(({ received }) => received).find(({ kind }) => kind === 'error' || kind === 'result'),
  );
  assert.equal(answer.kind, 'error');
  assert.equal((await call).answer.kind, 'error');
});

test('a second answer to a question is ignored', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      client.answer(message.id, { roots: [] });
      client.answer(message.id, { roots: [{ uri: 'file:///late' }] });
      client.answer('"unknown"', {});
    },
  });
  const answers = memory.peers.flatMap(({ received }) => received.filter(({ kind }) => kind === 'result'));
  assert.equal(answers.length, 1);
});

test('an unknown method of an upstream is refused, and a ping is answered', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer) => {
      peer.send('{"jsonrpc":"2.0","id":"p","method":"ping"}');
      peer.send('{"jsonrpc":"2.0","id":"u","method":"tools/list"}');
    },
    response: (peer, response) => {
      const call = peer.received.find((m) => m.kind === 'request' && m.method === 'tools/call');
      if (response.id === '"u"' && call?.kind === 'request') peer.send(result(call, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { messages } = await client.request('tools/call', toolCall('up__echo'));
  assert.deepEqual(messages, []);
  const responses = memory.peers.flatMap(({ received }) =>
    received.filter(({ kind }) => kind === 'result' || kind === 'error'),
  );
  assert.deepEqual(
    responses.map((response) => (response.kind === 'error' ? response.error.code : response.kind)),
    ['result', -32601],
  );
});

// N-28
test('a large question beyond the limit is refused until another is answered', TIMEOUT, async () => {
  const text = 'x'.repeat(3_700_000);
  const ask = (id: string) =>
    `{"jsonrpc":"2.0","id":"${id}","method":"elicitation/create","params":{"message":"${text}","requestedSchema":{"type":"object","properties":{}}}}`;
  const responses: string[] = [];
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      for (const id of ['q0', 'q1', 'q2']) peer.send(ask(id), Number(request.id));
    },
    response: (peer, response) => {
      const isFirst = responses.push(`${response.kind} ${JSON.parse(response.id)}`) === 2;
      const call = peer.received.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
      if (call?.kind !== 'request') return;
      if (isFirst) peer.send(ask('q3'), Number(call.id));
      if (responses.length === 4) peer.send(result(call, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  let together = 2;
  const asked: Request[] = [];
  const { answer } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      if (asked.push(message) < together) return;
      together = 1;
      const now = asked.splice(0);
      // The upstream has sent all its questions by then.
      setImmediate(() => {
        for (const { id } of now) client.answer(id, { action: 'decline' });
      });
    },
  });
  assert.equal(answer.kind, 'result');
  assert.equal(responses.filter((one) => one.startsWith('error')).join(), 'error q2');
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="openQuestionBytesPerPrincipal"\} 1/);
});

// N-28
test('a question beyond the limit is asked if no other waits', TIMEOUT, async () => {
  const params = JSON.stringify({
    message: 'x'.repeat(LIMITS.openQuestionBytesPerUpstream / 2),
    requestedSchema: { type: 'object', properties: {} },
  });
  const responses: string[] = [];
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      const ask = (id: string) =>
        peer.send(
          `{"jsonrpc":"2.0","id":"${id}","method":"elicitation/create","params":${params}}`,
          Number(request.id),
        );
      ask('q0');
      ask('q1');
    },
    response: (peer, response) => {
      const call = peer.received.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
      const isLast = responses.push(`${response.kind} ${JSON.parse(response.id)}`) === 2;
      if (isLast && call?.kind === 'request') peer.send(result(call, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { answer } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind === 'request') setImmediate(() => client.answer(message.id, { action: 'decline' }));
    },
  });
  assert.equal(answer.kind, 'result');
  assert.deepEqual(responses, ['error q1', 'result q0']);
});

// N-28
test('limit openQuestionBytesPerPrincipal: others are asked by the same upstream', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      const text = request.params?.object('arguments')?.string('text');
      const params = JSON.stringify({ message: text, requestedSchema: { type: 'object', properties: {} } });
      const asked = `{"jsonrpc":"2.0","id":"q${request.id}","method":"elicitation/create","params":${params}}`;
      peer.send(asked, Number(request.id));
    },
    response: (peer, response) => {
      const id = JSON.parse(response.id).slice(1);
      const call = peer.received.find((m) => m.kind === 'request' && m.id === id);
      if (call?.kind === 'request') peer.send(result(call, { got: response.kind }));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const principal = (key: string) => ({ key, label: key, scopes: [] });
  const capabilities = { elicitation: {} };
  const ann = await gateway.connect({ capabilities, principal: principal('ann') });
  const large = toolCall('up__echo', { text: 'x'.repeat(4_000_000) });
  for (let n = 0; n < 2; n++) {
    const { promise, resolve } = Promise.withResolvers<void>();
    void ann.request('tools/call', large, { onMessage: () => resolve() });
    await promise;
  }
  const refused = await ann.request('tools/call', large);
  assert.ok(refused.answer.kind === 'result', JSON.stringify(refused.answer));
  assert.equal(refused.answer.result, '{"got":"error"}');
  const bob = await gateway.connect({ capabilities, principal: principal('bob') });
  const { asked, got } = await exchange(bob, { action: 'decline' });
  assert.deepEqual([asked.length, got], [1, 'result']);
});

// N-28
for (const [what, method, refused] of [
  ['with a member twice', 'elicitation/create', '"_meta":{"progressToken":1,"progressToken":2},'],
  ['beyond the budget of tokens', 'sampling/createMessage', '"messages":[],"maxTokens":9,'],
] as const) {
  test(`questions ${what} are refused, and leave room for others`, TIMEOUT, async () => {
    const text = 'x'.repeat(3_700_000);
    const ask = (id: string, asked: string, more = '') =>
      `{"jsonrpc":"2.0","id":"${id}","method":"${asked}","params":{${more}"message":"${text}","requestedSchema":{"type":"object","properties":{}}}}`;
    const responses: string[] = [];
    const memory = memoryUpstream({
      lists: { tools: [ECHO] },
      request: (peer, request) => {
        for (const id of ['q0', 'q1', 'q2', 'q3']) peer.send(ask(id, method, refused), Number(request.id));
        peer.send(ask('q4', 'elicitation/create'), Number(request.id));
      },
      response: (peer, response) => {
        const call = peer.received.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
        if (responses.push(`${response.kind} ${JSON.parse(response.id)}`) < 5 || call?.kind !== 'request') return;
        peer.send(result(call, {}));
      },
    });
    await using gateway = await testCore({ up: { memory, samplingBudget: 8 } });
    await exchange(await gateway.connect({ capabilities: { elicitation: {}, sampling: {} } }), { action: 'decline' });
    assert.deepEqual(responses, ['error q0', 'error q1', 'error q2', 'error q3', 'result q4']);
  });
}

//
test('a question that cannot be judged for each retry is not asked', TIMEOUT, async () => {
  const messages = '[{"role":"user","content":{"type":"text","type":"tool_use"}}]';
  const params = `{"messages":${messages},"maxTokens":1}`;
  const { memory, calls, call, ask, finish } = asker({ isAttributed: true, isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), SAMPLING_TOOLS);
  await memory.until(() => calls.get('n'));
  ask('n', 'q', 'sampling/createMessage', params);
  const [refused] = await memory.until(() => call('n').answers.get('q'));
  assert.partialDeepStrictEqual(refused, { error: { code: -32602 } });
  finish('n');
  assert.ok((await reply).result);
});

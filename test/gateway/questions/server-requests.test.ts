import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../../src/json/json.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { type TestClient, testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';

const TIMEOUT = { timeout: 20_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };

/** An upstream that asks this question during each call, and answers the call with the response. */
function asking(method: string, params: object): MemoryUpstream {
  return memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      peer.say(
        `{"jsonrpc":"2.0","id":"q","method":"${method}","params":${JSON.stringify(params)}}`,
        Number(request.id),
      );
    },
    response: (peer, response) => {
      const call = peer.heard.findLast((m) => m.kind === 'request' && m.method === 'tools/call');
      const told = response.kind === 'result' ? JSON.parse(response.result) : response.error;
      if (call?.kind === 'request') peer.say(result(call, { told }));
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
  return { asked, told: RawObject.parse(answer.result).value('told') };
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
  const { asked, told } = await exchange(client, reply);
  assert.deepEqual(JSON.parse(asked[0]?.params?.toString() ?? ''), params);
  assert.deepEqual(told, reply);
});

test('X-007 sampling with tools is refused for a client without that capability', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1, tools: [] });
  await using gateway = await testCore({ up: { memory } });
  const { asked, told } = await exchange(await gateway.connect({ capabilities: { sampling: {} } }), {});
  assert.deepEqual(asked, []);
  assert.partialDeepStrictEqual(told, { code: -32602 });
});

test('X-044 an older client gets sampling messages with one content each', TIMEOUT, async () => {
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

test('context for this server does not include other upstreams of the endpoint', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1, includeContext: 'thisServer' });
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const { asked } = await exchange(await gateway.connect({ capabilities: { sampling: { context: {} } } }), {});
  assert.equal(asked[0]?.params?.string('includeContext'), 'none');
});

test('roots come from the client, and their changes go to its own connections', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory } });
  const roots = [{ uri: 'file:///home', name: 'home' }];
  const client = await gateway.connect({ capabilities: { roots: { listChanged: true } } });
  const other = await gateway.connect({ capabilities: { roots: { listChanged: true } } });
  assert.deepEqual((await exchange(client, { roots })).told, { roots });
  await exchange(other, { roots: [] });
  client.notify('notifications/roots/list_changed');
  const told = () =>
    memory.peers.filter((peer) =>
      peer.heard.some((m) => m.kind === 'notification' && m.method === 'notifications/roots/list_changed'),
    );
  await memory.until(() => told()[0]);
  await exchange(other, { roots: [] });
  assert.equal(told().length, 1);
});

test('L-003 changed roots of a client that did not declare them are not forwarded', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  await exchange(client, { roots: [] });
  client.notify('notifications/roots/list_changed');
  await exchange(client, { roots: [] });
  const told = memory.peers.flatMap(({ heard }) => heard.map((m) => ('method' in m ? m.method : '')));
  assert.ok(!told.includes('notifications/roots/list_changed'));
});

test('X-028 equal elicitation ids of two upstreams are distinct for the client', TIMEOUT, async () => {
  const params = { mode: 'url', message: 'Sign in', url: 'https://example.com/', elicitationId: 'e1' };
  const memory = asking('elicitation/create', params);
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const capabilities = { elicitation: { url: {} } };
  const [client, other] = [await gateway.connect({ capabilities }), await gateway.connect({ capabilities })];
  const { asked } = await exchange(client, { action: 'accept' });
  const mine = memory.peers.at(-1);
  await exchange(other, { action: 'accept' });
  assert.equal(asked[0]?.params?.string('elicitationId'), 'up:e1');
  mine?.say('{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e1"}}');
  const complete = await client.heard('notifications/elicitation/complete');
  assert.ok(complete.kind === 'notification');
  assert.equal(complete.params?.string('elicitationId'), 'up:e1');
  assert.deepEqual(other.listened, []);
});

test('−32042 has the elicitation ids of later completions', TIMEOUT, async () => {
  const elicitation = { mode: 'url', elicitationId: 'e1', url: 'https://example.com/', message: 'Sign in' };
  const error = { code: -32042, message: 'Sign in first', data: { elicitations: [elicitation], more: true } };
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, { id }) => peer.say(`{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}`),
  });
  await using gateway = await testCore({ up: { memory }, other: { memory: memoryUpstream({}) } });
  const merged = await gateway.connect({ capabilities: { elicitation: { url: {} } } });
  const alone = await gateway.connect({ capabilities: { elicitation: { url: {} } }, view: 'up' });
  const mapped = { ...error, data: { ...error.data, elicitations: [{ ...elicitation, elicitationId: 'up:e1' }] } };
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
      client.notify('notifications/progress', { progressToken: token, progress: 1 });
      client.answer(message.id, { action: 'cancel' });
    },
  });
  await call;
  const heard = memory.peers.flatMap((peer) => peer.heard);
  const progress = heard.find((m) => m.kind === 'notification' && m.method === 'notifications/progress');
  assert.ok(progress?.kind === 'notification');
  assert.equal(progress.params?.toString(), '{"progressToken":"theirs","progress":1}');
});

test('a question that the upstream withdraws is cancelled at the client, by its id', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      peer.say('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
      peer.say('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}');
      peer.say(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  const { said } = await client.request('tools/call', toolCall('up__echo'));
  const [question, cancelled] = said;
  assert.ok(question?.kind === 'request' && cancelled?.kind === 'notification');
  assert.equal(cancelled.method, 'notifications/cancelled');
  assert.equal(cancelled.params?.raw('requestId'), question.id);
});

test('an upstream gets an answer when the asked session ends', TIMEOUT, async () => {
  const memory = asking('roots/list', {});
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  const asked = Promise.withResolvers<void>();
  const call = client.request('tools/call', toolCall('up__echo'), { onMessage: () => asked.resolve() });
  await asked.promise;
  await gateway.core.gateway.endSession(client.session);
  const answer = await memory.until(() =>
    memory.peers.flatMap(({ heard }) => heard).find(({ kind }) => kind === 'error' || kind === 'result'),
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
  const answers = memory.peers.flatMap(({ heard }) => heard.filter(({ kind }) => kind === 'result'));
  assert.equal(answers.length, 1);
});

test('an unknown method of an upstream is refused, and a ping is answered', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer) => {
      peer.say('{"jsonrpc":"2.0","id":"p","method":"ping"}');
      peer.say('{"jsonrpc":"2.0","id":"u","method":"tools/list"}');
    },
    response: (peer, response) => {
      const call = peer.heard.find((m) => m.kind === 'request' && m.method === 'tools/call');
      if (response.id === '"u"' && call?.kind === 'request') peer.say(result(call, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { said } = await client.request('tools/call', toolCall('up__echo'));
  assert.deepEqual(said, []);
  const responses = memory.peers.flatMap(({ heard }) =>
    heard.filter(({ kind }) => kind === 'result' || kind === 'error'),
  );
  assert.deepEqual(
    responses.map((response) => (response.kind === 'error' ? response.error.code : response.kind)),
    ['result', -32601],
  );
});

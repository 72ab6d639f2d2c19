import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LOCAL } from '../../src/policy/principal.ts';
import type { Message, Request } from '../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type Peer, result } from '../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const text = (value: string) => ({ content: [{ type: 'text', text: value }] });

function methods(messages: readonly Message[]): string[] {
  return messages.map((message) => ('method' in message ? message.method : message.kind));
}

/** An upstream whose tool asks its client this question, and returns the response. */
function asking(method: string, params: object = {}) {
  const waiting = new Map<Peer, string>();
  let asked = 0;
  return memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      waiting.set(peer, request.id);
      peer.send(
        `{"jsonrpc":"2.0","id":"ask-${++asked}","method":"${method}","params":${JSON.stringify(params)}}`,
        Number(request.id),
      );
    },
    response: (peer, response) => {
      const outcome = response.kind === 'result' ? response.result : JSON.stringify(response.error);
      peer.send(`{"jsonrpc":"2.0","id":${waiting.get(peer)},"result":${JSON.stringify(text(outcome))}}`);
    },
  });
}

// SEC-26
test('calls of several principals with one id get their own answers', TIMEOUT, async () => {
  const received: (readonly [Peer, Request])[] = [];
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => void received.push([peer, request]),
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const names = ['alice', 'bob', 'carol'];
  const answers = names.map(async (name) => {
    const client = await gateway.connect({ principal: { ...LOCAL, key: name, label: name } });
    const { answer } = await client.request('tools/call', toolCall('up__echo', { name }), { id: '"same"' });
    return answer.kind === 'result' ? JSON.parse(answer.result).content[0].text : answer.error;
  });
  await memory.until(() => received.length === names.length || undefined);
  assert.equal(new Set(received.map(([peer]) => peer)).size, 1);
  assert.equal(new Set(received.map(([, { id }]) => id)).size, names.length);
  for (const [peer, request] of received.toReversed()) {
    peer.send(result(request, text(request.params?.object('arguments')?.string('name') ?? '')));
  }
  assert.deepEqual(await Promise.all(answers), names);
});

//
test('a question of an upstream reaches only the client of its call', TIMEOUT, async () => {
  const memory = asking('elicitation/create', { message: 'Who?', requestedSchema: { type: 'object', properties: {} } });
  await using gateway = await testCore({ up: { memory } });
  const clients = await Promise.all([1, 2, 3].map(() => gateway.connect({ capabilities: { elicitation: {} } })));
  const answers = await Promise.all(
    clients.map((client, n) =>
      client.request('tools/call', toolCall('up__echo'), {
        id: '7',
        onMessage: (message) => {
          assert.ok(message.kind === 'request' && message.method === 'elicitation/create');
          client.answer(message.id, { action: 'accept', content: { n } });
        },
      }),
    ),
  );
  for (const [n, { answer, messages }] of answers.entries()) {
    assert.deepEqual(methods(messages), ['elicitation/create']);
    assert.ok(answer.kind === 'result' && answer.result.includes(`{\\"n\\":${n}}`), answer.kind);
  }
  assert.deepEqual(
    clients.flatMap(({ listened }) => listened),
    [],
  );
});

//
test('a shared connection declares no capabilities, and its questions are refused', TIMEOUT, async () => {
  const memory = asking('elicitation/create', { message: 'Who?' });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const client = await gateway.connect({ capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  const { answer, messages } = await client.request('tools/call', toolCall('up__echo'));
  assert.ok(answer.kind === 'result' && answer.result.includes('-32602'));
  assert.deepEqual(messages, []);
  assert.equal(memory.peers[0]?.capabilities.size, 0);
});

//
test('an upstream gets exactly the client’s capabilities, per connection', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [ECHO] } });
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const capabilities = {
    elicitation: { form: {}, url: {} },
    sampling: { tools: {} },
    experimental: { x: {} },
    tasks: {},
  };
  const able = await gateway.connect({ capabilities });
  const plain = await gateway.connect();
  await able.result('tools/call', toolCall('up__echo'));
  await plain.result('tools/call', toolCall('up__echo'));
  const declared = memory.peers.map((peer) => peer.capabilities.toString());
  const expected = '{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{}}';
  assert.ok(declared.includes(expected), declared.join());
  assert.ok(declared.includes('{}'));
});

//
test('a client never gets a question for which it declared no capability', TIMEOUT, async () => {
  const memory = asking('sampling/createMessage', { messages: [], maxTokens: 1 });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { answer, messages } = await client.request('tools/call', toolCall('up__echo'));
  assert.deepEqual(messages, []);
  assert.ok(answer.kind === 'result' && answer.result.includes('cannot be asked'));
});

// S-007
test('on the merged endpoint a question names its upstream', TIMEOUT, async () => {
  const memory = asking('elicitation/create', { message: 'Delete it?' });
  await using gateway = await testCore({ up: { memory, title: 'Files' }, other: { memory: memoryUpstream({}) } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { messages } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => message.kind === 'request' && client.answer(message.id, { action: 'decline' }),
  });
  const [ask] = messages;
  assert.ok(ask?.kind === 'request');
  assert.equal(ask.params?.string('message'), '[Files] Delete it?');
});

// M-019 M-020
test('progress has the client’s token and type, in order, before the answer', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      const token = request.params?.object('_meta')?.raw('progressToken');
      for (const progress of [1, 2, 3]) {
        peer.send(
          `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${progress}}}`,
        );
      }
      peer.send(result(request, text('done')));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (const progressToken of ['"a-b"', '17']) {
    const messages: Message[] = [];
    const meta = { progressToken: JSON.parse(progressToken) };
    await client.request('tools/call', toolCall('up__echo', {}, meta), {
      onMessage: (message) => messages.push(message),
    });
    const tokens = messages.map((message) => (message.kind === 'notification' ? message.params?.toString() : ''));
    assert.deepEqual(
      tokens,
      [1, 2, 3].map((progress) => `{"progressToken":${progressToken},"progress":${progress}}`),
    );
  }
});

// X-037 N-48
test('a cancellation has the upstream’s id, and the request gets no response', TIMEOUT, async () => {
  const started = Promise.withResolvers<Peer>();
  const cancelled = Promise.withResolvers<string | undefined>();
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer) => started.resolve(peer),
    notification: (_peer, { method, params }) => {
      if (method === 'notifications/cancelled') cancelled.resolve(params?.raw('requestId'));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = client.send('tools/call', toolCall('up__echo'), { id: '"0"' });
  const peer = await started.promise;
  const theirs = peer.received.find((message) => message.kind === 'request' && message.method === 'tools/call');
  client.notify('notifications/cancelled', { requestId: '0', reason: 'enough' });
  assert.ok(theirs?.kind === 'request');
  assert.equal(await cancelled.promise, theirs.id);
  assert.equal((await call).answer, undefined);
});

test('a log message is filtered by the level of each session', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      for (const level of ['debug', 'info', 'error']) {
        peer.send(
          `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"${level}","data":"x"}}`,
          Number(request.id),
        );
      }
      peer.send(result(request, request.method === 'tools/call' ? text('done') : {}));
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const quiet = await gateway.connect();
  const chatty = await gateway.connect();
  await quiet.result('logging/setLevel', { level: 'error' });
  await chatty.result('logging/setLevel', { level: 'debug' });
  const levels = async (client: typeof quiet) => {
    const { messages } = await client.request('tools/call', toolCall('up__echo'));
    return messages.map((message) => (message.kind === 'notification' ? message.params?.string('level') : undefined));
  };
  assert.deepEqual(await levels(quiet), ['error']);
  assert.deepEqual(await levels(chatty), ['debug', 'info', 'error']);
});

test('the log level of one session brings no messages to another that has set none', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      for (const level of ['debug', 'info']) {
        peer.send(
          `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"${level}","data":"x"}}`,
          Number(request.id),
        );
      }
      peer.send(result(request, request.method === 'tools/call' ? text('done') : {}));
    },
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const levelsTo = async (client: Awaited<ReturnType<typeof gateway.connect>>) => {
    const { messages } = await client.request('tools/call', toolCall('up__echo'));
    return messages.map((message) => (message.kind === 'notification' ? message.params?.string('level') : undefined));
  };
  const plain = await gateway.connect();
  const chatty = await gateway.connect();
  assert.deepEqual(await levelsTo(plain), ['debug', 'info'], 'the upstream decides while nobody has set a level');
  await levelsTo(chatty);
  await chatty.result('logging/setLevel', { level: 'debug' });
  assert.deepEqual(await levelsTo(plain), ['info']);
  assert.deepEqual(await levelsTo(chatty), ['debug', 'info']);
  await gateway.core.gateway.endSession(chatty.session);
  const levels = () => memory.requests('logging/setLevel').map(({ params }) => params?.string('level'));
  await memory.until(() => levels().length === 2 || undefined);
  assert.deepEqual(levels(), ['debug', 'info']);
});

//
test('an unknown log level is refused', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const client = await gateway.connect();
  const { answer } = await client.request('logging/setLevel', { level: 'loud' });
  assert.ok(answer.kind === 'error');
  assert.equal(answer.error.code, -32602);
});

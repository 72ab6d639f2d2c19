import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { initialize, messagesOf, post, postForEvents, rpc } from '../downstream/client.ts';
import { stream } from '../fixtures/servers/http-harness.ts';
import { testCore } from '../support/core.ts';
import { modernUpstream, type Served, type ServerScript } from '../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };
const MIRRORED = {
  name: 'act',
  inputSchema: { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } },
};
const DONE = { resultType: 'complete', content: [{ type: 'text', text: 'done' }] };
const QUESTION = {
  method: 'elicitation/create',
  params: { message: 'name?', requestedSchema: { type: 'object', properties: {} } },
};
const PAGE = {
  method: 'elicitation/create',
  params: { mode: 'url', message: 'Sign in', url: 'https://example.com/in' },
};
const asking = (question: object, requestState: string) => ({
  resultType: 'input_required',
  inputRequests: { q: question },
  requestState,
});
const CALL = { name: 'up__act', arguments: { region: 'eu' } };

type Act = (served: Served) => Readonly<Record<string, unknown>> | undefined;

/** A gateway before one server whose only tool does this. */
async function withTool(act: Act, settings: object = {}, script: ServerScript = { tools: [TOOL] }) {
  const upstream = await modernUpstream({ ...script, answers: { ...script.answers, 'tools/call': act } });
  const gateway = await openGateway({ up: { url: upstream.url, ...settings } });
  await modernResult(gateway.url, 'tools/list');
  return {
    url: gateway.url,
    upstream,
    calls: () => upstream.requests('tools/call'),
    [Symbol.asyncDispose]: async () => {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

function report(served: Served, progress: number): void {
  served.notify('notifications/progress', { progressToken: served.meta['progressToken'], progress });
}

const breaks: Act = ({ response }) => {
  response.destroy();
  return undefined;
};

const stops: Act = (served) => {
  report(served, 1);
  served.response.end();
  return undefined;
};

for (const [name, act] of [
  ['before it said anything', breaks],
  ['in the middle of what it said', stops],
] as const) {
  //
  test(`a call whose stream broke ${name} is not repeated`, TIMEOUT, async () => {
    await using at = await withTool(act);
    const { error } = answerOf(await modernPost(at.url, 'tools/call', CALL, { meta: { progressToken: 1 } }));
    assert.match(JSON.stringify(error), /"executed":"unknown"/);
    assert.equal(at.calls().length, 1);
  });
}

const hang: Act = ({ response }) => {
  stream(response);
  return undefined;
};

// L-015
test('a call without an answer in time fails, and its stream is closed', TIMEOUT, async () => {
  await using at = await withTool(hang, { timeouts: { call: '300ms' } });
  const { error } = answerOf(await modernPost(at.url, 'tools/call', CALL));
  assert.equal(error?.code, -31_011);
  await at.calls()[0]?.closed;
});

// L-015
test('progress does not extend a call without limit', TIMEOUT, async () => {
  const settings = { timeouts: { call: '300ms', max: '900ms' } };
  await using at = await withTool((served) => {
    stream(served.response);
    let progress = 0;
    const timer = setInterval(() => report(served, ++progress), 50);
    served.response.once('close', () => clearInterval(timer));
    return undefined;
  }, settings);
  const { error } = answerOf(await modernPost(at.url, 'tools/call', CALL, { meta: { progressToken: 'p' } }));
  assert.equal(error?.code, -31_011);
  await at.calls()[0]?.closed;
});

suite('headers that an upstream refuses', () => {
  const refuse = (served: Served): undefined => {
    served.error(-32_020, 'Header mismatch');
  };

  //
  test('are sent again by the current schema, unnoticed by the client', TIMEOUT, async () => {
    let tool: object = TOOL;
    const answers = {
      'tools/list': () => ({ resultType: 'complete', tools: [tool], ttlMs: 0, cacheScope: 'private' }),
    };
    const act: Act = (served) => (served.headers['mcp-param-region'] === 'eu' ? DONE : refuse(served));
    await using at = await withTool(act, {}, { tools: [TOOL], answers });
    const session = await initialize(at.url);
    tool = MIRRORED;
    const [answer] = messagesOf(await post(at.url, rpc(1, 'tools/call', CALL), session));
    assert.deepEqual(answer?.result, { content: DONE.content });
    assert.equal(at.calls().length, 2);
  });

  //
  test('are sent again once, and a legacy client gets an error code that it knows', TIMEOUT, async () => {
    await using at = await withTool(refuse, {}, { tools: [MIRRORED] });
    const session = await initialize(at.url);
    const [answer] = messagesOf(await post(at.url, rpc(1, 'tools/call', CALL), session));
    assert.equal(at.calls().length, 2);
    assert.notEqual(answer?.error, undefined);
    assert.doesNotMatch(JSON.stringify(answer), /-3202\d/);
  });
});

const FORM = { message: 'Who?', mode: 'form', requestedSchema: { type: 'object', properties: {} } };
const SAMPLING = { messages: [], maxTokens: 1 };

/** Asks one question, and then answers the call with the response. */
function asks(method: string, params: object): Act {
  return ({ params: { inputResponses } }) =>
    inputResponses === undefined
      ? { resultType: 'input_required', inputRequests: { k: { method, params } }, requestState: 'inner' }
      : { ...DONE, structuredContent: { received: inputResponses } };
}

for (const { name, method, params, capabilities } of [
  { name: 'sampling', method: 'sampling/createMessage', params: SAMPLING, capabilities: { elicitation: {} } },
  {
    name: 'sampling with tools',
    method: 'sampling/createMessage',
    params: { ...SAMPLING, tools: [] },
    capabilities: { sampling: {} },
  },
  { name: 'roots', method: 'roots/list', params: {}, capabilities: { sampling: {} } },
  { name: 'a form', method: 'elicitation/create', params: FORM, capabilities: { elicitation: { url: {} } } },
  {
    name: 'a page',
    method: 'elicitation/create',
    params: { mode: 'url', message: 'Go', url: 'https://example.com/' },
    capabilities: { elicitation: {} },
  },
]) {
  //
  test(`a modern client is not asked for ${name} without declaring it`, TIMEOUT, async () => {
    await using at = await withTool(asks(method, params));
    const got = await modernPost(at.url, 'tools/call', CALL, { capabilities });
    const { result, error } = answerOf(got);
    assert.notEqual(result?.['resultType'], 'input_required', got.text);
    assert.ok(error !== undefined || result?.['isError'] === true, got.text);
    assert.equal(at.calls().length, 1);
  });
}

//
test('a shared modern upstream is told of no features, and its questions are refused', TIMEOUT, async () => {
  await using at = await withTool(asks('elicitation/create', FORM), { isolation: 'shared' });
  const capabilities = { elicitation: {}, sampling: {}, roots: {} };
  const { result, error } = answerOf(await modernPost(at.url, 'tools/call', CALL, { capabilities }));
  assert.deepEqual(result, undefined);
  assert.match(JSON.stringify(error), /may not use elicitation of clients, because they share it/);
  const session = await initialize(at.url, '2025-11-25', {}, capabilities);
  const [answer] = messagesOf(await post(at.url, rpc(1, 'tools/call', CALL), session));
  assert.match(JSON.stringify(answer), /may not use elicitation of clients/);
  const declared = at.upstream.received.items.map(({ meta }) => meta['io.modelcontextprotocol/clientCapabilities']);
  for (const features of declared) assert.doesNotMatch(JSON.stringify(features ?? {}), /elicitation|sampling|roots/);
  assert.equal(at.calls().length, 2);
});

//
test('the state of one upstream is not sent to another one or another tool', TIMEOUT, async () => {
  const answers = { 'tools/call': asks('elicitation/create', FORM) };
  const script = { tools: [TOOL, { ...TOOL, name: 'other' }], answers };
  await using one = await modernUpstream(script);
  await using two = await modernUpstream(script);
  await using gateway = await openGateway({ one: { url: one.url }, two: { url: two.url } });
  const options = { capabilities: { elicitation: {} } };
  const call = { name: 'one__act', arguments: {} };
  const { requestState } = await modernResult(gateway.url, 'tools/call', call, options);
  assert.doesNotMatch(String(requestState), /inner/);
  const inputResponses = { k: { action: 'accept', content: {} } };
  for (const name of ['two__act', 'one__other', 'two__other']) {
    const retry = { name, arguments: {}, inputResponses, requestState };
    const { error } = answerOf(await modernPost(gateway.url, 'tools/call', retry, options));
    assert.equal(error?.code, -32_602, name);
  }
  assert.equal(two.requests('tools/call').length, 0);
  assert.equal(one.requests('tools/call').length, 1);
  const retry = { ...call, inputResponses, requestState };
  assert.equal((await modernResult(gateway.url, 'tools/call', retry, options))['resultType'], 'complete');
  assert.equal(JSON.parse(one.requests('tools/call')[1]?.body ?? '').params.requestState, 'inner');
});

for (const { method, params, ends } of [
  { method: 'sampling/createMessage', params: SAMPLING, ends: /"isError":true/ },
  { method: 'roots/list', params: {}, ends: /"isError":true/ },
  { method: 'elicitation/create', params: FORM, ends: /"received":\{"k":\{"action":"cancel"\}\}/ },
]) {
  //
  test(`the call of a legacy client that refuses ${method} ends`, TIMEOUT, async () => {
    await using at = await withTool(asks(method, params));
    const session = await initialize(at.url, '2025-11-25', {}, { sampling: {}, elicitation: {}, roots: {} });
    await post(at.url, '{"jsonrpc":"2.0","method":"notifications/initialized"}', session);
    const events = await postForEvents(at.url, rpc(1, 'tools/call', CALL), session);
    await events.until(({ messages }) => messages.some((message) => message.method === method));
    const id = events.messages.find((message) => message.method === method)?.id;
    const refusal = JSON.stringify({ jsonrpc: '2.0', id, error: { code: -1, message: 'User rejected' } });
    assert.equal((await post(at.url, refusal, session)).status, 202);
    await events.ended();
    assert.match(JSON.stringify(events.messages.at(-1)?.result), ends);
  });
}

test('an error reaches clients with the numbers and the order of its data', TIMEOUT, async () => {
  const error = '{"message":"busy","code":-32000,"data":{"retry":1.0,"ticket":12345678901234567890}}';
  await using at = await withTool(({ id, response }) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"error":${error}}`);
    return undefined;
  });
  const session = await initialize(at.url);
  for (const got of [
    await modernPost(at.url, 'tools/call', CALL),
    await post(at.url, rpc(1, 'tools/call', CALL), session),
  ]) {
    assert.ok(got.text.includes(error), got.text);
  }
});

test('what comes late on a stream that was replaced has no members of 2026-07-28', TIMEOUT, async () => {
  const subscriptionId = 'io.modelcontextprotocol/subscriptionId';
  const notify = (method: string, id: unknown, params: object) =>
    JSON.stringify({
      jsonrpc: '2.0',
      method: `notifications/${method}`,
      params: { ...params, _meta: { [subscriptionId]: id } },
    });
  const capabilities = { tools: {}, resources: { subscribe: true } };
  const memory: MemoryUpstream = memoryUpstream({
    isRaw: true,
    lists: { resources: ['a', 'b'].map((name) => ({ uri: `file:///${name}`, name })) },
    request: (peer, request) => {
      if (request.method !== 'subscriptions/listen') {
        return peer.send(result(request, { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities }));
      }
      const notifications = request.params?.value('notifications');
      return peer.send(notify('subscriptions/acknowledged', Number(request.id), { notifications }));
    },
    notification: (peer, { method, params }) => {
      if (method !== 'notifications/cancelled') return;
      const ended = params?.value('requestId');
      peer.send(notify('resources/updated', ended, { uri: 'file:///a' }));
      peer.send(notify('subscriptions/acknowledged', ended, { notifications: {} }));
      peer.send(
        notify('resources/updated', Number(memory.requests('subscriptions/listen').at(-1)?.id), { uri: 'file:///b' }),
      );
    },
  });
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = await gateway.connect();
  await client.result('resources/list');
  for (const name of ['a', 'b']) await client.result('resources/subscribe', { uri: `up+file:///${name}` });
  await client.until(() =>
    client.listened.find((one) => 'params' in one && one.params?.string('uri') === 'up+file:///b'),
  );
  assert.deepEqual(
    client.listened.map((one) => 'method' in one && [one.method, String(one.params)]),
    ['a', 'b'].map((name) => ['notifications/resources/updated', JSON.stringify({ uri: `up+file:///${name}` })]),
  );
});

suite('a modern upstream that is lost while the client of a session is asked', () => {
  /** Calls a tool that asks once, or twice for a page. Its process ends before the client answers; the next one may not start. */
  async function call(restarts: boolean, question: object = QUESTION) {
    const answers = new Map<string | undefined, object>([[undefined, asking(question, 's')]]);
    if (question === PAGE) answers.set('s', asking(PAGE, 't'));
    let asked = 0;
    const memory = memoryUpstream({
      isRaw: true,
      lists: { tools: [TOOL] },
      start: () => (asked > 0 && !restarts ? Promise.reject(new Error('gone')) : Promise.resolve()),
      request: (peer, request) => {
        const { method, params } = request;
        if (method === 'server/discover') {
          const hello = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
          return peer.send(result(request, { ...hello, ttlMs: 0, cacheScope: 'private' }));
        }
        return peer.send(result(request, answers.get(params?.string('requestState')) ?? DONE));
      },
    });
    await using gateway = await testCore({ up: { memory, era: 'modern' } });
    const client = await gateway.connect({ capabilities: { elicitation: { form: {}, url: {} } } });
    const { answer } = await client.request('tools/call', CALL, {
      onMessage: (message) => {
        if (message.kind !== 'request') return;
        asked++;
        for (const peer of memory.open) peer.crash();
        client.answer(message.id, { action: 'accept', content: {} });
      },
    });
    return { answer, asked, states: memory.requests('tools/call').map(({ params }) => params?.raw('requestState')) };
  }

  //
  test('gets the answers at its next process, and the call does not begin again', TIMEOUT, async () => {
    const { answer, asked, states } = await call(true);
    assert.equal(answer.kind, 'result', JSON.stringify(answer));
    assert.deepEqual([asked, states], [1, [undefined, '"s"']]);
  });

  test('waits at its next process for a page that the user has opened, and shows it once', TIMEOUT, async () => {
    const { answer, asked, states } = await call(true, PAGE);
    assert.equal(answer.kind, 'result', JSON.stringify(answer));
    assert.deepEqual([asked, states], [1, [undefined, '"s"', '"t"']]);
  });

  //
  test('has begun with the call, so that no failure says to make it again', TIMEOUT, async () => {
    const { answer, states } = await call(false);
    assert.match(JSON.stringify(answer), /check what it did.*"executed":"unknown","retryable":false/);
    assert.deepEqual(states, [undefined]);
  });
});

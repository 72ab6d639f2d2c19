import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { META } from '../../src/protocol/meta.ts';
import { type TestClient, testCore, toolCall } from '../support/core.ts';
import { type HttpUpstream, modernUpstream, type Served, type ServerScript } from '../support/http-upstream.ts';
import { inputRequiredIn, modernRequest } from '../support/modern-client.ts';
import { samplingWithLink } from '../support/sampling.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const CALL = toolCall('up__t');
const TOOL = { name: 't', inputSchema: { type: 'object' } };
const ALL = { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, logging: {} };
const FORM_SCHEMA = { type: 'object', properties: { who: { type: 'string' } } };
const FORM = { method: 'elicitation/create', params: { mode: 'form', message: 'Who?', requestedSchema: FORM_SCHEMA } };
const PAGE = { method: 'elicitation/create', params: { mode: 'url', message: 'Go', url: 'https://example.org/' } };
const SAMPLE = {
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: { type: 'text', text: 'hi' } }], maxTokens: 9 },
};
const WITH_TOOLS = { ...SAMPLE, params: { ...SAMPLE.params, tools: [{ name: 'x', inputSchema: { type: 'object' } }] } };
const TOOL_CHOICE = { ...SAMPLE, params: { ...SAMPLE.params, toolChoice: { mode: 'auto' } } };
const TOOL_USE = {
  ...SAMPLE,
  params: {
    messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'x', input: {} }] }],
    maxTokens: 9,
  },
};
const TOOL_RESULT = {
  ...SAMPLE,
  params: { messages: [{ role: 'user', content: { type: 'tool_result', toolUseId: '1', content: [] } }], maxTokens: 9 },
};
const ROOTS = { method: 'roots/list' };

function textOf(text: string) {
  return { content: [{ type: 'text', text }] };
}

/** A modern server with a tool `t` that runs `request` of the script. */
async function upstream(script: ServerScript): Promise<HttpUpstream> {
  return await modernUpstream({ capabilities: ALL, tools: [TOOL], ...script });
}

/** Asks these questions, and answers with the responses. */
function asking(questions: Readonly<Record<string, object>>): (served: Served) => void {
  return (served) => {
    const { inputResponses } = served.params;
    if (inputResponses === undefined) {
      served.result({ resultType: 'input_required', inputRequests: questions, requestState: 'plain' });
    } else served.result(textOf(JSON.stringify(inputResponses)));
  };
}

function missing(requiredCapabilities: object): (served: Served) => void {
  return (served) => served.error(-32021, 'Missing required client capability', { requiredCapabilities });
}

/** Calls the tool as a legacy client that answers every question this way. */
async function callTool(
  client: TestClient,
  reply: (asked: Message) => object | number,
  params: object = CALL,
  method = 'tools/call',
) {
  const asked: Message[] = [];
  const { answer } = await client.request(method, params, {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      asked.push(message);
      const content = reply(message);
      if (typeof content === 'number') client.refuse(message.id, content);
      else client.answer(message.id, content);
    },
  });
  return { asked, answer };
}

//
suite('an upstream’s error about a missing capability', () => {
  for (const [method, params] of [
    ['tools/call', CALL],
    ['prompts/get', { name: 'up__p' }],
    ['resources/read', { uri: 'up+test://a' }],
  ] as const) {
    test(`is translated for a legacy client of ${method}`, TIMEOUT, async () => {
      await using up = await upstream({
        prompts: [{ name: 'p' }],
        resources: [{ uri: 'test://a', name: 'a' }],
        request: missing({ elicitation: {} }),
      });
      await using gateway = await testCore({ up: up.config });
      const { answer } = await (await gateway.connect()).request(method, params);
      if (method === 'tools/call') {
        assert.ok(answer.kind === 'result', JSON.stringify(answer));
        assert.partialDeepStrictEqual(JSON.parse(answer.result), { isError: true });
      } else assert.equal(answer.kind === 'error' && answer.error.code, -31019);
    });
  }

  test('reaches a modern client that has not declared the capability', TIMEOUT, async () => {
    await using up = await upstream({ request: missing({ elicitation: { form: {} } }) });
    await using gateway = await testCore({ up: up.config });
    const { error } = await modernRequest(gateway, 'tools/call', CALL).reply;
    assert.partialDeepStrictEqual(error, {
      code: -32021,
      data: { requiredCapabilities: { elicitation: { form: {} } } },
    });
  });

  test('does not reach a modern client that has declared the capability', TIMEOUT, async () => {
    const extensions = { 'org.example/unheard': {} };
    await using up = await upstream({ request: missing({ extensions }) });
    await using gateway = await testCore({ up: up.config });
    const { error } = await modernRequest(gateway, 'tools/call', CALL, { capabilities: { extensions } }).reply;
    assert.ok(error !== undefined);
    assert.notEqual(error.code, -32021, JSON.stringify(error));
  });
});

//
suite('a legacy client that answers a question with an error', () => {
  const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
  test('cancels a form, and the call continues', TIMEOUT, async () => {
    await using up = await upstream({ request: asking({ who: FORM }) });
    await using gateway = await testCore({ up: up.config });
    const { asked, answer } = await callTool(await gateway.connect({ capabilities }), () => -1);
    assert.equal(asked.length, 1);
    assert.ok(answer.kind === 'result', JSON.stringify(answer));
    assert.deepEqual(JSON.parse(JSON.parse(answer.result).content[0].text), { who: { action: 'cancel' } });
  });

  for (const question of [SAMPLE, ROOTS]) {
    test(`fails the call if the question was ${question.method}`, TIMEOUT, async () => {
      await using up = await upstream({ request: asking({ q: question }) });
      await using gateway = await testCore({ up: up.config });
      const client = await gateway.connect({ capabilities });
      const { answer } = await callTool(client, () => -1);
      assert.ok(answer.kind === 'result', JSON.stringify(answer));
      assert.partialDeepStrictEqual(JSON.parse(answer.result), { isError: true });
      assert.equal(up.requests('tools/call').length, 1);
    });
  }
});

// X-003 X-005
suite('all questions of a modern upstream reach a legacy client', () => {
  test('on the stream of its call, and each answer goes back once under its own key', TIMEOUT, async () => {
    await using up = await upstream({ request: asking({ who: FORM, what: SAMPLE, where: ROOTS }) });
    await using gateway = await testCore({ up: up.config });
    const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
    const client = await gateway.connect({ capabilities });
    const content: Record<string, object> = {
      'elicitation/create': { action: 'accept', content: { who: 'Ada' } },
      'sampling/createMessage': { role: 'assistant', content: { type: 'text', text: 'ho' }, model: 'm' },
      'roots/list': { roots: [{ uri: 'file:///a' }] },
    };
    const { asked, answer } = await callTool(client, (one) => ('method' in one ? (content[one.method] ?? {}) : {}));
    assert.equal(asked.length, 3);
    assert.equal(new Set(asked.map((one) => ('id' in one ? one.id : ''))).size, 3);
    assert.deepEqual(
      client.listened.filter(({ kind }) => kind === 'request'),
      [],
    );
    assert.ok(answer.kind === 'result', JSON.stringify(answer));
    assert.deepEqual(JSON.parse(JSON.parse(answer.result).content[0].text), {
      who: content['elicitation/create'],
      what: content['sampling/createMessage'],
      where: content['roots/list'],
    });
    const [first, second] = up.requests('tools/call');
    assert.ok(first !== undefined && second !== undefined);
    assert.notEqual(second.id, first.id);
    assert.equal(second.params['requestState'], 'plain');
    assert.deepEqual(second.params['arguments'], first.params['arguments']);
    await callTool(client, () => -1);
    const third = up.requests('tools/call')[2];
    assert.ok(third !== undefined && !('inputResponses' in third.params) && !('requestState' in third.params));
  });
});

// M-016 SEC-35
suite('a link in sampling of a modern upstream leads to this upstream', () => {
  const question = { method: 'sampling/createMessage', params: samplingWithLink('other+file:///secret') };
  const capabilities = { sampling: { tools: {} } };

  test('for a legacy client', TIMEOUT, async () => {
    await using up = await upstream({ request: asking({ q: question }) });
    await using gateway = await testCore({ up: up.config });
    const { asked } = await callTool(await gateway.connect({ capabilities }), () => ({}));
    const [one] = asked.map((message) => JSON.parse(String('params' in message ? message.params : '')));
    assert.deepEqual(one, samplingWithLink('up+other+file:///secret'));
  });

  test('for a modern client', TIMEOUT, async () => {
    await using up = await upstream({ request: asking({ q: question }) });
    await using gateway = await testCore({ up: up.config });
    const { inputRequests } = inputRequiredIn(await modernRequest(gateway, 'tools/call', CALL, { capabilities }).reply);
    assert.deepEqual(inputRequests['q']?.params, samplingWithLink('up+other+file:///secret'));
  });
});

//
suite('a request is asked only what it declared', () => {
  const cases = [
    { question: FORM, capabilities: {}, needs: { elicitation: { form: {} } } },
    { question: FORM, capabilities: { elicitation: { url: {} } }, needs: { elicitation: { form: {} } } },
    { question: PAGE, capabilities: { elicitation: {} }, needs: { elicitation: { url: {} } } },
    { question: SAMPLE, capabilities: { elicitation: {}, roots: {} }, needs: { sampling: {} } },
    { question: WITH_TOOLS, capabilities: { sampling: {} }, needs: { sampling: { tools: {} } } },
    { question: TOOL_CHOICE, capabilities: { sampling: {} }, needs: { sampling: { tools: {} } } },
    { question: TOOL_USE, capabilities: { sampling: {} }, needs: { sampling: { tools: {} } } },
    { question: TOOL_RESULT, capabilities: { sampling: {} }, needs: { sampling: { tools: {} } } },
    { question: ROOTS, capabilities: { sampling: {} }, needs: { roots: {} } },
  ];
  for (const { question, capabilities, needs } of cases) {
    const [part = ''] = /url|form|toolChoice|tool_\w+|tools/.exec(JSON.stringify(question)) ?? [];
    const what = `${question.method} ${part}`;
    test(`${what} to one that declared ${JSON.stringify(capabilities)}`, TIMEOUT, async () => {
      await using up = await upstream({ request: asking({ q: question }) });
      await using gateway = await testCore({ up: up.config });
      const { result, error } = await modernRequest(gateway, 'tools/call', CALL, { capabilities }).reply;
      assert.equal(error?.code, -32021, JSON.stringify(result ?? error));
      assert.partialDeepStrictEqual(error.data, { requiredCapabilities: needs });
      assert.equal(up.requests('tools/call').length, 1);
    });
  }

  const fine = [
    { question: FORM, capabilities: { elicitation: {} } },
    { question: PAGE, capabilities: { elicitation: { url: {} } } },
    { question: WITH_TOOLS, capabilities: { sampling: { tools: {} } } },
    { question: TOOL_USE, capabilities: { sampling: { tools: {} } } },
    { question: ROOTS, capabilities: { roots: {} } },
  ];
  for (const { question, capabilities } of fine) {
    test(`${question.method}, which ${JSON.stringify(capabilities)} allows`, TIMEOUT, async () => {
      await using up = await upstream({ request: asking({ q: question }) });
      await using gateway = await testCore({ up: up.config });
      const asked = inputRequiredIn(await modernRequest(gateway, 'tools/call', CALL, { capabilities }).reply);
      // N-44: the Go SDK cannot read roots/list without params.
      assert.deepEqual(asked.inputRequests, { q: { params: {}, ...question } });
      // M-026
      assert.equal(asked.serverName, 'linkspan');
    });
  }
});

// M-027 M-016
test('an answer with questions keeps its other members, with published URIs', TIMEOUT, async () => {
  const _meta = { 'com.example/x': 1, [META.serverInfo]: { name: 'theirs', version: '1' } };
  const content = [{ type: 'resource_link', uri: 'other+file:///secret', name: 'a' }];
  await using up = await upstream({
    request: (served) =>
      served.result({
        resultType: 'input_required',
        inputRequests: { q: ROOTS },
        requestState: 's',
        _meta,
        x: 1,
        content,
      }),
  });
  await using gateway = await testCore({ up: up.config });
  const { result } = await modernRequest(gateway, 'tools/call', CALL, { capabilities: { roots: {} } }).reply;
  const published = [{ ...content[0], uri: 'up+other+file:///secret' }];
  assert.partialDeepStrictEqual(result, { _meta: { 'com.example/x': 1 }, x: 1, content: published });
  const asked = inputRequiredIn({ result, error: undefined });
  assert.equal(asked.serverName, 'linkspan');
  assert.notEqual(asked.requestState, 's');
});

//
suite('the requestState of an upstream', () => {
  const stateful = (name: string, states: unknown[]) => (served: Served) => {
    const { requestState } = served.params;
    states.push(requestState);
    if (requestState === undefined) {
      served.result({ resultType: 'input_required', inputRequests: { q: FORM }, requestState: `of ${name}` });
    } else served.result(textOf(name));
  };

  test('comes back to this upstream only, byte for byte', TIMEOUT, async () => {
    const states: Record<string, unknown[]> = { a: [], b: [] };
    await using a = await upstream({ request: stateful('a "\u00fc\\u0041', states['a'] ?? []) });
    await using b = await upstream({ request: stateful('b', states['b'] ?? []) });
    await using gateway = await testCore({ a: a.config, b: b.config });
    const options = { capabilities: { elicitation: {} } };
    const asked = inputRequiredIn(await modernRequest(gateway, 'tools/call', toolCall('a__t'), options).reply);
    assert.ok(!asked.requestState.includes('of a'));
    const retry = { requestState: asked.requestState, inputResponses: { q: { action: 'decline' } } };
    const wrong = await modernRequest(gateway, 'tools/call', { ...toolCall('b__t'), ...retry }, options).reply;
    assert.equal(wrong.error?.code, -32602);
    const bare = { ...retry, requestState: 'of a "\u00fc\\u0041' };
    const forged = await modernRequest(gateway, 'tools/call', { ...toolCall('a__t'), ...bare }, options).reply;
    assert.equal(forged.error?.code, -32602);
    const right = await modernRequest(gateway, 'tools/call', { ...toolCall('a__t'), ...retry }, options).reply;
    assert.equal(right.result?.['resultType'], 'complete');
    assert.deepEqual(states, { a: [undefined, 'of a "\u00fc\\u0041'], b: [] });
  });

  //
  test('is not what a legacy client sends under this name', TIMEOUT, async () => {
    await using up = await upstream({ request: asking({ q: FORM }) });
    await using gateway = await testCore({ up: up.config });
    const client = await gateway.connect();
    await client.request('tools/call', {
      ...CALL,
      requestState: 'of bob',
      inputResponses: { q: { action: 'accept' } },
    });
    const [first] = up.requests('tools/call');
    assert.ok(first !== undefined && !('requestState' in first.params) && !('inputResponses' in first.params));
  });

  //
  test('is absent from the retry if the upstream gave none', TIMEOUT, async () => {
    await using up = await upstream({
      request: (served) => {
        if (served.params['inputResponses'] !== undefined) served.result(textOf('done'));
        else served.result({ resultType: 'input_required', inputRequests: { q: FORM } });
      },
    });
    await using gateway = await testCore({ up: up.config });
    const options = { capabilities: { elicitation: {} } };
    const asked = inputRequiredIn(await modernRequest(gateway, 'tools/call', CALL, options).reply);
    const retry = { requestState: asked.requestState, inputResponses: { q: { action: 'decline' } } };
    const { result } = await modernRequest(gateway, 'tools/call', { ...CALL, ...retry }, options).reply;
    assert.equal(result?.['resultType'], 'complete');
    const last = up.requests('tools/call').at(-1);
    assert.ok(last !== undefined && !('requestState' in last.params));
    assert.deepEqual(last.params['inputResponses'], retry.inputResponses);
  });
});

//
suite('an upstream that asks for a retry without questions', () => {
  test('gets a bounded number of retries, with pauses', TIMEOUT, async () => {
    const cameMs: number[] = [];
    await using up = await upstream({
      request: (served) => {
        cameMs.push(performance.now());
        served.result({ resultType: 'input_required', requestState: 'again' });
      },
    });
    await using gateway = await testCore({ up: up.config });
    const { answer } = await (await gateway.connect()).request('tools/call', CALL);
    assert.equal(answer.kind === 'error' && answer.error.code, -31012);
    assert.equal(cameMs.length, 8);
    // A pause may be longer, on a busy machine, and never shorter.
    for (const [i, ms] of cameMs.slice(1).entries()) assert.ok(ms - (cameMs[i] ?? 0) >= 240, `pause ${i + 1}`);
  });
});

//
test('a client that cancels its call is no longer asked the questions of it', TIMEOUT, async () => {
  await using up = await upstream({ request: asking({ q: FORM, r: ROOTS }) });
  await using gateway = await testCore({ up: up.config });
  const client = await gateway.connect({ capabilities: { elicitation: {}, roots: {} } });
  const asked: string[] = [];
  const call = client.send('tools/call', CALL, {
    id: '7',
    onMessage: (message) => {
      if (message.kind === 'request') asked.push(message.id);
    },
  });
  await waitUntil(() => asked.length === 2);
  client.notify('notifications/cancelled', { requestId: 7 });
  const { answer, messages } = await call;
  assert.equal(answer, undefined);
  const withdrawn = [...messages, ...client.listened].flatMap((message) =>
    message.kind === 'notification' && message.method === 'notifications/cancelled'
      ? [message.params?.raw('requestId')]
      : [],
  );
  assert.deepEqual(withdrawn, asked);
});

for (const era of ['legacy', 'modern'] as const) {
  // X-045 X-047
  suite(`a ${era} client`, () => {
    async function ended(gateway: Awaited<ReturnType<typeof testCore>>, method: string, params: object) {
      if (era === 'modern') return await modernRequest(gateway, method, params).reply;
      const { answer } = await (await gateway.connect()).request(method, params);
      return answer.kind === 'error'
        ? { result: undefined, error: answer.error }
        : { result: JSON.parse(answer.result), error: undefined };
    }

    //
    test('gets executed "unknown" for a broken stream, and the call is not repeated', TIMEOUT, async () => {
      await using up = await upstream({ request: (served) => served.breakOff() });
      await using gateway = await testCore({ up: up.config });
      const { error } = await ended(gateway, 'tools/call', CALL);
      assert.partialDeepStrictEqual(error, { code: -31010, data: { executed: 'unknown', retryable: false } });
      assert.equal(up.requests('tools/call').length, 1);
    });

    //
    test('gets a result after a header mismatch: the call is repeated with new lists', TIMEOUT, async () => {
      let isNew = false;
      const mirrored = { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } };
      await using up = await upstream({
        answers: {
          'tools/list': () => {
            const tools = [isNew ? { ...TOOL, inputSchema: mirrored } : TOOL];
            return { resultType: 'complete', tools, ttlMs: 0, cacheScope: 'private' };
          },
        },
        request: (served) => {
          isNew = true;
          if (served.headers['mcp-param-region'] === 'eu') served.result(textOf('in eu'));
          else served.error(-32020, 'Header mismatch');
        },
      });
      await using gateway = await testCore({ up: up.config });
      const { result, error } = await ended(gateway, 'tools/call', toolCall('up__t', { region: 'eu' }));
      assert.partialDeepStrictEqual(result, textOf('in eu'), JSON.stringify(error));
      assert.equal(up.requests('tools/call').length, 2);
    });

    //
    test('gets an error of its revision if the mismatch persists', TIMEOUT, async () => {
      await using up = await upstream({ request: (served) => served.error(-32020, 'Header mismatch') });
      await using gateway = await testCore({ up: up.config });
      const { error } = await ended(gateway, 'tools/call', CALL);
      assert.ok(error !== undefined);
      assert.notEqual(error.code, -32020, JSON.stringify(error));
      assert.equal(up.requests('tools/call').length, 2);
    });

    //
    test('gets the missing-resource error of its revision', TIMEOUT, async () => {
      await using up = await upstream({
        resources: [{ uri: 'test://a', name: 'a' }],
        request: (served) => served.error(-32602, 'Resource not found', { uri: 'test://a' }),
      });
      await using gateway = await testCore({ up: up.config });
      const { error } = await ended(gateway, 'resources/read', { uri: 'up+test://a' });
      assert.partialDeepStrictEqual(error, {
        code: era === 'modern' ? -32602 : -32002,
        data: { uri: 'up+test://a' },
      });
    });
  });
}

//
test('a session’s log level is sent with each of its requests, and with no other', TIMEOUT, async () => {
  await using up = await upstream({
    request: (served) => {
      const level = served.meta[META.logLevel];
      if (level !== undefined) served.notify('notifications/message', { level, data: 'said' });
      served.result(textOf('done'));
    },
  });
  await using gateway = await testCore({ up: up.config });
  const [loud, quiet] = [await gateway.connect(), await gateway.connect()];
  await loud.result('logging/setLevel', { level: 'warning' });
  const states = await loud.request('tools/call', CALL);
  assert.deepEqual(
    states.messages.map((one) => 'method' in one && one.method),
    ['notifications/message'],
  );
  assert.deepEqual((await quiet.request('tools/call', CALL)).messages, []);
  assert.deepEqual(
    up.requests('tools/call').map((one) => one.meta[META.logLevel]),
    ['warning', undefined],
  );
});

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { initialize, messagesOf, post, postForEvents, rpc } from '../downstream/client.ts';
import { modernUpstream, legacyUpstream, type Served, type ServerScript } from '../support/http-upstream.ts';
import { hasUnseen, shownText } from '../../src/peer-text.ts';
import { inputRequiredIn } from '../support/modern-client.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { type CollectedSpan, type Collector, startCollector } from '../support/otlp-collector.ts';

const TIMEOUT = { timeout: 120_000 };
const TRACED = fileURLToPath(new URL('../fixtures/servers/traced-stdio.ts', import.meta.url));
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`;
const TRACESTATE = 'vendor=abc';
const CONTEXT = { traceparent: TRACEPARENT, tracestate: TRACESTATE };
const DONE = { resultType: 'complete', content: [{ type: 'text', text: 'done' }] };
const SCRIPT: ServerScript = {
  tools: [{ name: 'act', inputSchema: { type: 'object' } }],
  prompts: [{ name: 'greet' }],
  resources: [{ uri: 'test://a-secret-place', name: 'a' }],
  answers: { 'tools/call': () => DONE },
};
const ERAS = ['legacy', 'modern'] as const;
type Era = (typeof ERAS)[number];
const UPSTREAMS = { legacy: legacyUpstream, modern: modernUpstream };
const CALL = { name: 'up__act', arguments: { password: 'an-argument' } };

interface Carrier {
  readonly meta?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Calls as a client of this era does. Returns the result. */
async function call(
  gateway: OpenGateway,
  era: Era,
  params: Readonly<Record<string, unknown>> = CALL,
  { meta, headers }: Carrier = {},
  method = 'tools/call',
): Promise<unknown> {
  if (era === 'modern') {
    const got = await modernPost(gateway.url, method, params, { ...(meta && { meta }), ...(headers && { headers }) });
    return answerOf(got).result;
  }
  const session = await initialize(gateway.url);
  const sent = meta === undefined ? params : { ...params, _meta: meta };
  const got = await post(gateway.url, rpc(1, method, sent), session, headers);
  return messagesOf(got).at(-1)?.result;
}

function traced({ endpoint }: Collector, own: object = {}): Readonly<Record<string, unknown>> {
  return { tracing: { endpoint, ...own } };
}

/** Returns the span of this name and kind. Each exists once. */
function only(spans: readonly CollectedSpan[], name: string, kind: CollectedSpan['kind']): CollectedSpan {
  const found = spans.filter((span) => span.name === name && span.kind === kind);
  assert.equal(found.length, 1, `${name} ${kind}: ${JSON.stringify(spans.map((span) => [span.name, span.kind]))}`);
  const [span] = found;
  assert.ok(span !== undefined);
  return span;
}

suite('one trace spans client, gateway and upstream', () => {
  for (const client of ERAS) {
    for (const upstream of ERAS) {
      test(`a ${client} client, a ${upstream} upstream, the trace in _meta`, TIMEOUT, async () => {
        await using collector = await startCollector();
        await using up = await UPSTREAMS[upstream](SCRIPT);
        await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
        const result = await call(gateway, client, CALL, { meta: CONTEXT });
        assert.match(JSON.stringify(result), /"text":"done"/);
        await gateway.stop();
        assertOneTrace(collector, up.requests('tools/call'));
      });

      test(`a ${client} client, a ${upstream} upstream, the trace in headers`, TIMEOUT, async () => {
        await using collector = await startCollector();
        await using up = await UPSTREAMS[upstream](SCRIPT);
        await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
        await call(gateway, client, CALL, { headers: CONTEXT });
        await gateway.stop();
        assertOneTrace(collector, up.requests('tools/call'));
      });
    }
  }

  for (const client of ERAS) {
    for (const era of ERAS) {
      test(`a ${client} client, a ${era} upstream over stdio`, TIMEOUT, async () => {
        await using collector = await startCollector();
        const up = { command: process.execPath, args: [TRACED], era };
        await using gateway = await openGateway({ up }, traced(collector));
        const result = await call(gateway, client, { name: 'up__meta' }, { meta: CONTEXT });
        await gateway.stop();
        const sent = only(collector.spans.items, 'tools/call meta', 'client');
        assert.equal(sent.traceId, TRACE);
        assert.equal(sent.attributes['network.transport'], 'pipe');
        const text = JSON.stringify(result);
        assert.ok(text.includes(`00-${TRACE}-${sent.spanId}-01`), text);
        assert.ok(text.includes(TRACESTATE), text);
      });
    }
  }

  test('two gateways in a row take part in the same trace', TIMEOUT, async () => {
    await using collector = await startCollector();
    await using up = await modernUpstream(SCRIPT);
    await using inner = await openGateway({ up: { url: up.url } }, traced(collector));
    await using outer = await openGateway({ inner: { url: inner.url } }, traced(collector));
    await call(outer, 'modern', { name: 'inner__up__act' }, { meta: CONTEXT });
    await outer.stop();
    await inner.stop();
    const calls = collector.spans.items.filter(({ traceId, kind }) => traceId === TRACE && kind !== 'internal');
    assert.equal(calls.length, 4);
    const gateways = new Set(calls.map(({ resource }) => resource['service.instance.id']));
    assert.equal(gateways.size, 2);
    // Each span is the parent of the next.
    let parent = PARENT;
    for (let step = 0; step < 4; step++) {
      const next = calls.find(({ parentId }) => parentId === parent);
      assert.ok(next !== undefined, `nothing below ${parent}`);
      parent = next.spanId;
    }
    assert.equal(up.requests('tools/call')[0]?.meta['traceparent'], `00-${TRACE}-${parent}-01`);
  });
});

function assertOneTrace({ spans, requests }: Collector, served: readonly Served[]): void {
  const received = only(spans.items, 'tools/call up__act', 'server');
  assert.deepEqual([received.traceId, received.parentId], [TRACE, PARENT]);
  const sent = only(spans.items, 'tools/call act', 'client');
  assert.deepEqual([sent.traceId, sent.parentId], [TRACE, received.spanId]);
  const [one] = served;
  assert.ok(one !== undefined);
  const context = { traceparent: `00-${TRACE}-${sent.spanId}-01`, tracestate: TRACESTATE };
  assert.deepEqual([one.headers['traceparent'], one.headers['tracestate']], [context.traceparent, context.tracestate]);
  assert.deepEqual([one.meta['traceparent'], one.meta['tracestate']], [context.traceparent, context.tracestate]);
  assert.deepEqual([requests[0]?.path, requests[0]?.headers['content-type']], ['/v1/traces', 'application/x-protobuf']);
}

test('spans have the attributes of the conventions for MCP, and no secret', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await legacyUpstream(SCRIPT);
  const headers = { authorization: 'Bearer a-credential' };
  await using gateway = await openGateway({ up: { url: up.url, headers } }, traced(collector));
  const session = await initialize(gateway.url);
  await post(gateway.url, rpc('request-7', 'tools/call', CALL), session);
  await post(gateway.url, rpc(8, 'prompts/get', { name: 'up__greet', arguments: { word: 'an-argument' } }), session);
  await post(gateway.url, rpc(9, 'resources/read', { uri: 'up+test://a-secret-place' }), session);
  await post(gateway.url, rpc(10, 'tools/call', { name: 'a-name-that-no-list-has' }), session);
  await post(gateway.url, rpc(11, 'a/method/that/nobody/has'), session);
  await gateway.stop();
  const { items } = collector.spans;
  const shared = { 'mcp.protocol.version': '2025-11-25', 'network.transport': 'tcp', 'linkspan.upstream': 'up' };
  const tool = { 'mcp.method.name': 'tools/call', 'gen_ai.operation.name': 'execute_tool' };
  assert.deepEqual(only(items, 'tools/call up__act', 'server').attributes, {
    ...shared,
    ...tool,
    'gen_ai.tool.name': 'up__act',
    'jsonrpc.request.id': 'request-7',
  });
  const sent = only(items, 'tools/call act', 'client');
  const id = String(up.requests('tools/call')[0]?.id);
  assert.deepEqual(sent.attributes, { ...shared, ...tool, 'gen_ai.tool.name': 'act', 'jsonrpc.request.id': id });
  assert.equal(sent.isError, false);

  const prompt = only(items, 'prompts/get up__greet', 'server');
  assert.equal(prompt.attributes['gen_ai.prompt.name'], 'up__greet');
  assert.equal(prompt.attributes['error.type'], 'rpc_error');
  assert.equal(prompt.attributes['rpc.response.status_code'], '-32601');
  assert.equal(prompt.isError, true);
  assert.equal(only(items, 'resources/read', 'server').isError, true);
  assert.equal(only(items, 'tools/call', 'server').attributes['error.type'], 'unknown-tool');
  assert.equal(only(items, '_other', 'server').attributes['mcp.method.name'], '_other');

  const { resource } = prompt;
  assert.equal(resource['service.name'], 'linkspan');
  const exported = Buffer.concat(collector.requests.map(({ body }) => body)).toString('latin1');
  const secrets = [session, 'an-argument', 'a-credential', 'a-secret-place', 'a-name-that-no-list-has', 'nobody'];
  for (const secret of secrets) assert.ok(!exported.includes(secret), secret);
});

test('the start of an upstream and the waits of a call are spans of its trace', TIMEOUT, async () => {
  await using collector = await startCollector();
  const held = Promise.withResolvers<void>();
  const calls: Served[] = [];
  const act = (served: Served) => {
    calls.push(served);
    if (calls.length > 1) return DONE;
    void held.promise.then(() => served.result(DONE));
    return undefined;
  };
  await using up = await modernUpstream({ ...SCRIPT, answers: { 'tools/call': act } });
  await using gateway = await openGateway({ up: { url: up.url, concurrency: 1 } }, traced(collector));
  await modernResult(gateway.url, 'tools/list');
  const first = call(gateway, 'modern', CALL, { meta: CONTEXT });
  await up.received.find(({ rpc: method }) => method === 'tools/call');
  const second = call(gateway, 'modern', CALL, { meta: { traceparent: `00-${'a'.repeat(32)}-${PARENT}-01` } });
  await untilQueued(gateway);
  held.resolve();
  await Promise.all([first, second]);
  await gateway.stop();
  const { items } = collector.spans;
  const queued = only(items, 'queue up', 'internal');
  assert.equal(queued.traceId, 'a'.repeat(32));
  assert.equal(
    queued.parentId,
    items.find(({ traceId, kind }) => traceId === queued.traceId && kind === 'server')?.spanId,
  );
  // The first list has started the upstream, and named no trace.
  assert.equal(only(items, 'start up', 'internal').attributes['linkspan.upstream'], 'up');
});

/** Resolves when a request waits for a slot of its upstream. */
async function untilQueued(gateway: OpenGateway): Promise<void> {
  for (;;) if (/^linkspan_upstream_requests_queued\{upstream="up"\} 1$/m.test(await gateway.metrics())) return;
}

test('a call that starts its own process has the start in its trace', TIMEOUT, async () => {
  await using collector = await startCollector();
  const up = { command: process.execPath, args: [TRACED], era: 'legacy', isolation: 'call' };
  await using gateway = await openGateway({ up }, traced(collector));
  await modernResult(gateway.url, 'tools/list');
  // The first call takes the process that has read the lists.
  await call(gateway, 'legacy', { name: 'up__meta' });
  await call(gateway, 'legacy', { name: 'up__meta' }, { meta: CONTEXT });
  await gateway.stop();
  const own = collector.spans.items.filter(({ traceId }) => traceId === TRACE);
  const server = only(own, 'tools/call up__meta', 'server');
  const connect = only(own, 'connect up', 'internal');
  assert.equal(connect.parentId, server.spanId);
  assert.equal(only(own, 'start up', 'internal').parentId, connect.spanId);
});

const TASKS = 'io.modelcontextprotocol/tasks';
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };
const WORKING = { taskId: 't-1', status: 'working', ...TIMES };
/** An upstream with a tool that creates a task, by its era. */
const TASK_SCRIPTS = {
  legacy: {
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    task: { task: { ...WORKING, ttl: 60_000 } },
    state: { ...WORKING, ttl: 60_000 },
  },
  modern: {
    capabilities: { tools: {}, extensions: { [TASKS]: {} } },
    task: { resultType: 'task', ...WORKING, ttlMs: 60_000 },
    state: { resultType: 'complete', ...WORKING, ttlMs: 60_000 },
  },
} as const;

for (const era of ERAS) {
  test(`the waits of a task request at a ${era} upstream are spans of its trace`, TIMEOUT, async () => {
    await using collector = await startCollector();
    const { capabilities, task, state } = TASK_SCRIPTS[era];
    const held = Promise.withResolvers<void>();
    const tools = [
      { name: 'act', inputSchema: { type: 'object' } },
      { name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } },
    ];
    const toolsCall = (served: Served) => {
      if (served.params['name'] === 'job') return task;
      void held.promise.then(() => served.result(DONE));
      return undefined;
    };
    const answers = { 'tools/call': toolsCall, 'tasks/get': () => state };
    await using up = await UPSTREAMS[era]({ capabilities, tools, answers });
    const entry = { url: up.url, era, concurrency: 1 };
    // With this isolation, a request about a task opens a connection of its own. A legacy task ends with its connection.
    const own = era === 'modern' ? { isolation: 'call' } : {};
    await using gateway = await openGateway({ up: { ...entry, ...own } }, traced(collector));
    const knowing = { capabilities: { extensions: { [TASKS]: {} } } };
    const { taskId } = await modernResult(gateway.url, 'tools/call', { name: 'up__job', arguments: {} }, knowing);
    const first = call(gateway, 'modern');
    await up.received.find(({ rpc: method, params }) => method === 'tools/call' && params['name'] === 'act');
    const asking = modernResult(gateway.url, 'tasks/get', { taskId }, { ...knowing, meta: CONTEXT });
    await untilQueued(gateway);
    held.resolve();
    assert.equal((await asking)['status'], 'working');
    await first;
    await gateway.stop();
    const spans = collector.spans.items.filter(({ traceId }) => traceId === TRACE);
    const server = only(spans, 'tasks/get', 'server');
    assert.equal(only(spans, 'queue up', 'internal').parentId, server.spanId);
    if (era === 'modern') assert.equal(only(spans, 'connect up', 'internal').parentId, server.spanId);
  });
}

test('a parked call is one span until its client comes back, and the retry is linked', TIMEOUT, async () => {
  await using collector = await startCollector();
  const up = { command: process.execPath, args: [TRACED], era: 'legacy' };
  await using gateway = await openGateway({ up }, traced(collector));
  const capabilities = { elicitation: { form: {} } };
  const params = { name: 'up__ask' };
  const asked = inputRequiredIn(
    answerOf(await modernPost(gateway.url, 'tools/call', params, { capabilities, meta: CONTEXT })),
  );
  const [question = ''] = Object.keys(asked.inputRequests);
  const inputResponses = { [question]: { action: 'accept', content: { who: 'ann' } } };
  const retry = { ...params, requestState: asked.requestState, inputResponses };
  const done = await modernResult(gateway.url, 'tools/call', retry, { capabilities });
  assert.match(JSON.stringify(done), /ann/);
  await gateway.stop();
  const { items } = collector.spans;
  const [first, second] = items.filter(({ kind, name }) => kind === 'server' && name === 'tools/call up__ask');
  assert.ok(first !== undefined && second !== undefined);
  const parked = only(items, 'parked up', 'internal');
  assert.deepEqual([parked.traceId, parked.parentId, parked.isError], [TRACE, first.spanId, false]);
  assert.deepEqual(second.links, [first.spanId]);
  // The call at the upstream was made once, for the first request.
  assert.equal(only(items, 'tools/call ask', 'client').parentId, first.spanId);
});

test('a question to a client that keeps its call open is a span of the call', TIMEOUT, async () => {
  await using collector = await startCollector();
  const up = { command: process.execPath, args: [TRACED], era: 'legacy' };
  await using gateway = await openGateway({ up }, traced(collector));
  const session = await initialize(gateway.url, '2025-11-25', {}, { elicitation: {} });
  const params = { name: 'up__ask', _meta: CONTEXT };
  const events = await postForEvents(gateway.url, rpc(1, 'tools/call', params), session);
  await events.until(({ messages }) => messages.length > 0);
  const [asked] = events.messages;
  assert.equal(asked?.method, 'elicitation/create');
  const answer = { jsonrpc: '2.0', id: asked?.id, result: { action: 'accept', content: { who: 'ann' } } };
  await post(gateway.url, JSON.stringify(answer), session);
  await events.ended();
  await gateway.stop();
  const { items } = collector.spans;
  const question = only(items, 'elicitation/create', 'client');
  assert.equal(question.parentId, only(items, 'tools/call up__ask', 'server').spanId);
  assert.equal(question.isError, false);
});

test('without tracing, the trace of a client is relayed as it is', TIMEOUT, async () => {
  for (const client of ERAS) {
    for (const upstream of ERAS) {
      await using up = await UPSTREAMS[upstream](SCRIPT);
      await using gateway = await openGateway({ up: { url: up.url } });
      await call(gateway, client, CALL, { meta: CONTEXT });
      const [served] = up.requests('tools/call');
      assert.equal(served?.meta['traceparent'], TRACEPARENT, `${client} ${upstream}`);
      assert.equal(served?.meta['tracestate'], TRACESTATE);
      assert.equal(served?.headers['traceparent'], undefined);
    }
  }
});

test('a request without a trace begins one, and its log line names it', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, { ...traced(collector), accessLog: 'all' });
  await call(gateway, 'modern');
  await gateway.stop();
  const received = only(collector.spans.items, 'tools/call up__act', 'server');
  assert.equal(received.parentId, '');
  const line = gateway.lines
    .join('')
    .split('\n')
    .find((text) => text.includes('"method":"tools/call"'));
  assert.equal(JSON.parse(line ?? '{}').traceId, received.traceId);
});

// N-70
test('an attribute of a span has at most 200 visible characters of a client', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await legacyUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
  const id = `\u009b\u202e\u200b${'i'.repeat(1_000)}`;
  await post(gateway.url, rpc(id, 'ping'), await initialize(gateway.url));
  await gateway.stop();
  const { attributes } = only(collector.spans.items, 'ping', 'server');
  assert.equal(attributes['jsonrpc.request.id'], shownText(id));
  assert.ok(!hasUnseen(Object.values(attributes).join('')));
});

const FAILURES = [
  { client: 'legacy', name: 'no-such-tool', capabilities: {} },
  { client: 'modern', name: 'no-such-tool', capabilities: {} },
  { client: 'modern', name: 'up__act', capabilities: { elicitation: { form: {} } } },
] as const;

for (const { client, name, capabilities } of FAILURES) {
  const can = 'elicitation' in capabilities ? ' with elicitation' : '';
  test(`a failed call of a ${client} client${can} has its trace in data and log`, TIMEOUT, async () => {
    await using collector = await startCollector();
    await using up = await legacyUpstream({ ...SCRIPT, answers: { 'tools/call': () => undefined } });
    // The upstream has to answer lists, and no call.
    const timeouts = name === 'up__act' ? { call: '3s' } : {};
    await using gateway = await openGateway({ up: { url: up.url, timeouts } }, traced(collector));
    const params = { name };
    let got;
    if (client === 'modern') got = await modernPost(gateway.url, 'tools/call', params, { capabilities, meta: CONTEXT });
    else got = await post(gateway.url, rpc(1, 'tools/call', { name, _meta: CONTEXT }), await initialize(gateway.url));
    const data: unknown = Object(messagesOf(got).at(-1)?.error).data;
    assert.equal(Object(data).traceId, TRACE, got.text);
    await gateway.stop();
    const failures = gateway.lines.filter((line) => /"reason":"(?:Upstream|Unknown)/.test(line));
    assert.deepEqual(
      failures.map((line) => JSON.parse(line).traceId),
      [TRACE],
    );
  });
}

for (const era of ERAS) {
  test(`the trace of a call replaces configured trace headers of a ${era} upstream`, TIMEOUT, async () => {
    await using collector = await startCollector();
    await using up = await UPSTREAMS[era](SCRIPT);
    const headers = {
      TraceParent: `00-${'d'.repeat(32)}-${'e'.repeat(16)}-01`,
      tracestate: 'operator=1',
      'x-own': 'kept',
    };
    await using gateway = await openGateway({ up: { url: up.url, headers } }, traced(collector));
    await call(gateway, era, CALL, { meta: { traceparent: TRACEPARENT } });
    await gateway.stop();
    const sent = only(collector.spans.items, 'tools/call act', 'client');
    const [served] = up.requests('tools/call');
    assert.equal(served?.headers['traceparent'], `00-${TRACE}-${sent.spanId}-01`);
    assert.equal(served.headers['tracestate'], undefined);
    assert.equal(served.headers['x-own'], 'kept');
  });
}

test('a context in _meta is the parent, and a different one in the headers is linked', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
  const headers = { traceparent: `00-${'b'.repeat(32)}-${'c'.repeat(16)}-01` };
  await call(gateway, 'modern', CALL, { meta: CONTEXT, headers });
  await gateway.stop();
  const received = only(collector.spans.items, 'tools/call up__act', 'server');
  assert.deepEqual([received.traceId, received.parentId], [TRACE, PARENT]);
  assert.deepEqual(received.links, ['c'.repeat(16)]);
});

test('malformed trace contexts begin a trace of their own, and the call is answered', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
  const malformed = ['', 'ff-nothing', `00-${'0'.repeat(32)}-${PARENT}-01`, `00-${TRACE}-${'0'.repeat(16)}-01`, 7, {}];
  for (const traceparent of malformed) {
    assert.ok(await call(gateway, 'modern', CALL, { meta: { traceparent } }), JSON.stringify(traceparent));
  }
  await gateway.stop();
  const received = collector.spans.items.filter(({ kind, name }) => kind === 'server' && name === 'tools/call up__act');
  assert.equal(new Set(received.map(({ traceId }) => traceId)).size, malformed.length);
  assert.ok(received.every(({ traceId, parentId }) => traceId !== TRACE && parentId === ''));
});

test('limit traceContextChars: a longer trace context is ignored and counted', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
  const tracestate = `vendor=${'x'.repeat(600)}`;
  assert.ok(await call(gateway, 'modern', CALL, { meta: { traceparent: TRACEPARENT, tracestate } }));
  assert.match(await gateway.metrics(), /^linkspan_limit_reached_total\{limit="traceContextChars"\} 1$/m);
  await gateway.stop();
  assert.notEqual(only(collector.spans.items, 'tools/call up__act', 'server').traceId, TRACE);
});

test('with sampling 0 only clients that trace their requests are traced', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector, { sampling: 0 }));
  await call(gateway, 'modern');
  await call(gateway, 'modern', CALL, { meta: CONTEXT });
  await gateway.stop();
  const flags = up.requests('tools/call').map(({ meta }) => String(meta['traceparent']).slice(-2));
  assert.deepEqual(flags, ['00', '01']);
  assert.deepEqual(new Set(collector.spans.items.map(({ traceId }) => traceId)), new Set([TRACE]));
});

test('requests are answered while traces cannot be exported; log and metric say so', TIMEOUT, async () => {
  // 400 is not repeated.
  await using collector = await startCollector(400);
  await using up = await modernUpstream(SCRIPT);
  await using gateway = await openGateway({ up: { url: up.url } }, traced(collector));
  assert.ok(await call(gateway, 'modern'));
  await gateway.stop();
  assert.ok(collector.requests.length > 0);
  assert.ok(gateway.lines.some((line) => line.includes('traces cannot be exported')));
});

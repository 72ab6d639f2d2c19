import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import { META } from '../../../src/protocol/meta.ts';
import type { ClaimAnswer } from '../../../src/store/keyed-call-store.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { legacyUpstream, modernUpstream, refuseWith } from '../../support/http-upstream.ts';
import { accepted, asker } from '../../support/asker.ts';
import { openTestAudit } from '../../support/audit.ts';
import { type TestClient, testCore, toolCall, UPSTREAM } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest, answersIn } from '../../support/modern-client.ts';
import { answerOf, modernPost } from '../../support/modern-wire.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { openGateway } from '../../support/open-gateway.ts';
import { coreTaskUpstream } from '../../support/task-upstreams.ts';
import { ANYONE } from '../../policy/policies.ts';
import { calling, DONE, endOf, holding } from './calling.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { type Request, responseText } from '../../../src/protocol/jsonrpc.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { inputSchema: { type: 'object' } };

/** An upstream that counts its calls. `waits` is answered by `release`, `fails` with an error. */
function upstream() {
  let count = 0;
  const held: { readonly peer: Peer; readonly request: Request }[] = [];
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: ['count', 'waits', 'fails'].map((name) => ({ name, ...TOOL })) },
    request: (peer, request) => {
      const name = request.params?.string('name');
      if (name === 'waits') held.push({ peer, request });
      else if (name === 'fails') {
        peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":7,"message":"failure ${++count}"}}`);
      } else peer.send(result(request, { content: [], number: ++count }));
    },
  });
  const release = () => {
    const next = held.shift();
    assert.ok(next);
    next.peer.send(result(next.request, { content: [], number: ++count }));
  };
  const arrived = () => memory.until(() => held[0]);
  return { memory, release, arrived, calls: () => memory.requests('tools/call') };
}

function keyed(name: string, key: unknown, args: object = {}): object {
  return toolCall(name, args, { [META.idempotencyKey]: key, other: 'kept' });
}

/** Makes a call. Returns the number in its result, or the code of its error. */
async function call(client: TestClient, params: object): Promise<unknown> {
  const { answer } = await client.request('tools/call', params);
  return answer.kind === 'result' ? JSON.parse(answer.result).number : Object(answer.error.data).code;
}

test('a call with a key is made once, and later ones get its answer', TIMEOUT, async () => {
  const { memory, calls } = upstream();
  await using gateway = await testCore({ up: { memory } });
  const [one, two] = [await gateway.connect(), await gateway.connect()];
  const first = await one.request('tools/call', keyed('up__count', 'k', { a: 1, b: { c: [1], d: 2 } }));
  const again = await two.request('tools/call', keyed('up__count', 'k', { b: { d: 2, c: [1] }, a: 1 }));
  assert.ok(first.answer.kind === 'result' && again.answer.kind === 'result');
  assert.equal(again.answer.result, first.answer.result);
  assert.equal(calls().length, 1);
  // The key is for the gateway; everything else in `_meta` is for the upstream.
  assert.equal(calls()[0]?.params?.raw('_meta')?.includes('idempotencyKey'), false);
  assert.equal(calls()[0]?.params?.object('_meta')?.string('other'), 'kept');
  const text = await gateway.metrics.text();
  for (const outcome of ['made', 'replayed']) {
    assert.match(text, RegExp(`^linkspan_keyed_calls_total\\{outcome="${outcome}"\\} 1$`, 'm'));
  }
});

test('a tool with a user interface is one tool to a key by both of its names', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'board', ...TOOL, _meta: { ui: {} } }] },
    request: (peer, request) => peer.send(result(request, { content: [] })),
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('tools/call', keyed('up__board', 'k'));
  await client.result('tools/call', keyed('board', 'k'));
  assert.equal(memory.requests('tools/call').length, 1);
});

test('a call with a key that is refused before it is sent does not count as made', TIMEOUT, async () => {
  const { memory, calls } = upstream();
  const everywhere = { endpoints: undefined, upstreams: undefined, tools: undefined };
  const rates = [{ name: 'few', to: ANYONE, ...everywhere, per: 'principal', limit: 1, windowMs: 600_000 }] as const;
  await using gateway = await testCore({ up: { memory } }, { rates });
  const client = await gateway.connect();
  const ends = [await call(client, keyed('up__fails', 'a')), await call(client, keyed('up__count', 'b'))];
  assert.deepEqual([ends, calls().length], [[undefined, 'rate-limited'], 1]);
  assert.match(await gateway.metrics.text(), /^linkspan_keyed_calls_total\{outcome="made"\} 1$/m);
});

test('another principal, endpoint, tool, key or argument makes another call', TIMEOUT, async () => {
  const { memory } = upstream();
  const profile = { id: 'p', upstreams: ['up'], includeTools: undefined, excludeTools: [], renames: {} };
  await using gateway = await testCore({ up: { memory } }, { profiles: [profile] });
  const bob = { key: 'key:bob', label: 'bob', scopes: [] };
  const client = await gateway.connect();
  assert.equal(await call(client, keyed('up__count', 'k', { a: [1, 2] })), 1);
  assert.equal(await call(client, keyed('up__count', 'k', { a: [2, 1] })), 2);
  assert.equal(await call(client, keyed('up__count', 'l', { a: [1, 2] })), 3);
  assert.equal(await call(await gateway.connect({ principal: bob }), keyed('up__count', 'k', { a: [1, 2] })), 4);
  assert.equal(await call(await gateway.connect({ view: 'p' }), keyed('up__count', 'k', { a: [1, 2] })), 5);
  assert.equal(await call(client, toolCall('up__count', { a: [1, 2] })), 6, 'no key');
  assert.equal(await call(client, keyed('up__count', 'k', { a: [1, 2] })), 1);
});

// REL-08
test('of 100 duplicates at once one is made, and all get its result', TIMEOUT, async () => {
  const { memory, release, arrived, calls } = upstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const duplicates = Array.from({ length: 100 }, () => call(client, keyed('up__waits', 'k')));
  await arrived();
  let refused = 0;
  for (const answer of duplicates) void answer.then((code) => (code === 'duplicate-call' ? refused++ : undefined));
  await waitUntil(async () => refused === 99);
  release();
  assert.deepEqual(new Set(await Promise.all(duplicates)), new Set(['duplicate-call', 1]));
  const retries = await Promise.all(Array.from({ length: 99 }, () => call(client, keyed('up__waits', 'k'))));
  assert.deepEqual(new Set(retries), new Set([1]));
  assert.equal(calls().length, 1);
});

test('a duplicate of a call under way is told when to ask again', TIMEOUT, async () => {
  const { memory, release, arrived } = upstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const first = call(client, keyed('up__waits', 'k'));
  await arrived();
  const { answer } = await client.request('tools/call', keyed('up__waits', 'k'));
  assert.ok(answer.kind === 'error');
  assert.match(answer.error.message, /is under way, and this one was not made\. Send it again with the same key/);
  const { retryAfterMs, ...data } = Object(answer.error.data);
  assert.deepEqual(data, { code: 'duplicate-call', upstream: 'up', executed: 'unknown', retryable: true });
  assert.ok(retryAfterMs > 0);
  release();
  assert.equal(await first, 1);
});

test('an error of the upstream, and an unknown outcome, are answers too', TIMEOUT, async () => {
  const { memory, arrived, calls } = upstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const fail = async () => (await client.request('tools/call', keyed('up__fails', 'k'))).answer;
  assert.deepEqual(await fail(), await fail());
  assert.equal(calls().length, 1);
  const lost = client.request('tools/call', keyed('up__waits', 'k'));
  (await arrived()).peer.crash();
  const first = (await lost).answer;
  assert.ok(first.kind === 'error' && Object(first.error.data).executed === 'unknown', JSON.stringify(first));
  assert.deepEqual((await client.request('tools/call', keyed('up__waits', 'k'))).answer, first);
  assert.equal(calls().length, 2);
});

test('a call that did not run is made by the next attempt with its key', TIMEOUT, async () => {
  const { memory, release, arrived, calls } = upstream();
  await using gateway = await testCore({ up: { memory } }, { limits: { inFlightPerPrincipal: 1 } });
  const client = await gateway.connect();
  const busy = call(client, toolCall('up__waits'));
  await arrived();
  assert.equal(await call(client, keyed('up__count', 'k')), 'overloaded');
  release();
  await busy;
  assert.equal(await call(client, keyed('up__count', 'k')), 2);
  assert.equal(calls().length, 2);
});

for (const key of ['', 7, null, { a: 1 }]) {
  test(`the key ${JSON.stringify(key)} is refused`, TIMEOUT, async () => {
    const { memory, calls } = upstream();
    await using gateway = await testCore({ up: { memory } });
    const { answer } = await (await gateway.connect()).request('tools/call', keyed('up__count', key));
    assert.ok(answer.kind === 'error' && answer.error.code === -32_602);
    assert.match(answer.error.message, /must be a text of 1 to 255 characters/);
    assert.equal(calls().length, 0);
  });
}

test('limit idempotencyKeyChars: a longer key is refused', TIMEOUT, async () => {
  const { memory } = upstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const long = 'x'.repeat(LIMITS.idempotencyKeyChars);
  assert.equal(await call(client, keyed('up__count', long)), 1);
  assert.equal(await call(client, keyed('up__count', `${long}x`)), 'invalid-params');
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="idempotencyKeyChars"\} 1$/m);
});

test('a call that waits for its client is made once, and its end is kept', TIMEOUT, async () => {
  const { memory, calls } = asker();
  await using gateway = await testCore({ up: { memory } });
  const options = { capabilities: { elicitation: { form: {} } }, meta: { [META.idempotencyKey]: 'k' } };
  const ask = (more: object = {}) =>
    modernRequest(gateway, 'tools/call', { ...toolCall('up__ask', { nonce: 'n' }), ...more }, options).reply;
  const { requestState, inputRequests } = inputRequiredIn(await ask());
  assert.equal(Object((await ask()).error?.data).code, 'duplicate-call');
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, accepted('Ada')]));
  const ended = answersIn(await ask({ requestState, inputResponses }));
  assert.deepEqual(answersIn(await ask()), ended);
  assert.equal(calls.size, 1);
});

test('a call whose client cannot be asked has that failure at each attempt', TIMEOUT, async () => {
  const { memory, calls } = asker();
  await using gateway = await testCore({ up: { memory } });
  const options = { meta: { [META.idempotencyKey]: 'k' } };
  const ask = async () =>
    (await modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), options).reply).error;
  const first = await ask();
  assert.equal(first?.code, -32_021);
  assert.deepEqual(await ask(), first);
  assert.equal(calls.size, 1);
});

test('a call that its modern upstream answers with questions goes on with the same key', TIMEOUT, async () => {
  let completed = 0;
  const inputRequests = {
    q: { method: 'elicitation/create', params: { mode: 'form', message: 'm', requestedSchema: {} } },
  };
  const server = await modernUpstream({
    tools: [{ name: 'ask', ...TOOL }],
    answers: {
      'tools/call': ({ params }) =>
        params['inputResponses'] === undefined
          ? { resultType: 'input_required', inputRequests, requestState: 's' }
          : { resultType: 'complete', content: [{ type: 'text', text: `${++completed}` }] },
    },
  });
  await using _server = server;
  await using gateway = await openGateway({ up: { url: server.url } });
  const options = { capabilities: { elicitation: { form: {} } }, meta: { [META.idempotencyKey]: 'k' } };
  const ask = async (more: object = {}) =>
    answerOf(await modernPost(gateway.url, 'tools/call', { name: 'up__ask', arguments: {}, ...more }, options));
  const { requestState } = inputRequiredIn(await ask());
  const retry = { requestState, inputResponses: { q: accepted('Ada') } };
  assert.match(JSON.stringify((await ask(retry)).result), /"text":"1"/);
  for (const more of [retry, {}]) assert.match(JSON.stringify((await ask(more)).result), /"text":"1"/);
  assert.equal(completed, 1);
});

// T-014
test('a call that needs a capability or a page first is made again with its key', TIMEOUT, async () => {
  const page = { mode: 'url', elicitationId: 'e', url: 'https://pay.test/', message: 'pay' };
  const tools = [{ name: 'ask', ...TOOL }];
  const needed = { code: -32_021, message: 'needed', data: { requiredCapabilities: { elicitation: {} } } };
  const first = { code: -32_042, message: 'first', data: { elicitations: [page] } };
  for (const [start, error] of [
    [modernUpstream, needed],
    [legacyUpstream, first],
  ] as const) {
    await using server = await start({ tools, answers: { 'tools/call': refuseWith(error) } });
    await using gateway = await openGateway({ up: { url: server.url } });
    for (const capabilities of [{}, { elicitation: { form: {}, url: {} } }]) {
      const options = { capabilities, meta: { [META.idempotencyKey]: 'k' } };
      await modernPost(gateway.url, 'tools/call', { name: 'up__ask', arguments: {} }, options);
    }
    assert.equal(server.requests('tools/call').length, 2, error.message);
  }
});

test('a code that an older server uses as it likes is the answer of its call', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'ask', ...TOOL }] },
    request: (peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32021,"message":"full"}}`),
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (let n = 0; n < 2; n++) {
    const { answer } = await client.request('tools/call', keyed('up__ask', 'k'));
    assert.equal(answer.kind === 'error' && answer.error.message, 'full');
  }
  assert.equal(memory.requests('tools/call').length, 1);
});

test('a call that a gateway behind this one did not make is made again with its key', TIMEOUT, async () => {
  const data = { code: 'rate-limited', executed: 'no', retryable: true };
  for (const [error, made] of [
    [{ code: -31_025, message: 'Rate limit reached', data }, 2],
    [{ code: -32_602, message: 'Unknown tool', data: { code: 'unknown-tool' } }, 2],
    [{ code: -31_025, message: 'Rate limit reached', data: { ...data, executed: 'unknown' } }, 1],
    [{ code: -31_025, message: 'Of another kind', data: { code: 'other', executed: 'no' } }, 1],
    [{ code: 5, message: 'Of another kind', data }, 1],
  ] as const) {
    const answers = { 'tools/call': refuseWith(error) };
    await using server = await legacyUpstream({ tools: [{ name: 'act', ...TOOL }], answers });
    await using gateway = await testCore({ up: server.config });
    const client = await gateway.connect();
    for (let time = 0; time < 2; time++) await client.request('tools/call', keyed('up__act', 'k'));
    assert.equal(server.requests('tools/call').length, made, JSON.stringify(error));
  }
});

test('the answer of a client of another revision is not given, nor its call repeated', TIMEOUT, async () => {
  const { memory, calls } = upstream();
  await using gateway = await testCore({ up: { memory } });
  assert.equal(await call(await gateway.connect(), keyed('up__count', 'k')), 1);
  const older = await gateway.connect({ revision: '2025-06-18' });
  const { answer } = await older.request('tools/call', keyed('up__count', 'k'));
  assert.ok(answer.kind === 'error');
  assert.match(answer.error.message, /for a client of revision 2025-11-25\. It was not made again/);
  assert.equal(calls().length, 1);
});

//
test('the task that answers a call is not given to a request that asks for none', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const meta = { [META.idempotencyKey]: 'k' };
  const extension = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const ask = (capabilities: object) =>
    modernRequest(gateway, 'tools/call', toolCall('up__job'), { capabilities, meta }).reply;
  const created = (await ask(extension)).result;
  assert.equal(created?.['resultType'], 'task');
  assert.deepEqual((await ask(extension)).result, created);
  assert.match((await ask({})).error?.message ?? '', /its answer is a task, which this request does not ask for/);
  assert.equal(memory.requests('tools/call').length, 1);

  const client = await gateway.connect();
  const call = keyed('up__either', 'k');
  const { answer } = await client.request('tools/call', { ...call, task: { ttl: 60_000 } });
  assert.deepEqual((await client.request('tools/call', { ...call, task: {} })).answer, answer);
  const plain = (await client.request('tools/call', call)).answer;
  assert.equal(plain.kind === 'error' && Object(plain.error.data).code, 'outcome-unknown');
});

test('the audit log says that an answer is that of an earlier call', TIMEOUT, async () => {
  await using audit = await openTestAudit({ required: true });
  {
    await using gateway = await testCore({ up: { memory: upstream().memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    for (let n = 0; n < 2; n++) assert.equal(await call(client, keyed('up__count', 'k')), 1);
  }
  const records = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    records.map(({ kind, upstream: to, isReplay }) => [kind, to, isReplay]),
    [
      ['begun', 'up', undefined],
      ['request', 'up', undefined],
      ['begun', 'up', undefined],
      ['request', 'up', true],
    ],
  );
});

test('an error of the upstream is recorded as one of it when it is given again', TIMEOUT, async () => {
  const data = { code: 'rate-limited', executed: 'no' };
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'lies', ...TOOL }] },
    request: (peer, { id }) => {
      peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":7,"message":"lie","data":${JSON.stringify(data)}}}`);
    },
  });
  await using audit = await openTestAudit();
  {
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    for (let n = 0; n < 2; n++) {
      const { answer } = await client.request('tools/call', keyed('up__lies', 'k'));
      assert.deepEqual(answer, { kind: 'error', error: { code: 7, message: 'lie', data } });
    }
    assert.equal((await gateway.metrics.text()).includes('error_type="rate-limited"'), false);
  }
  const records = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    records.map(({ isReplay, decision, error, executed }) => [isReplay, decision, error, executed]),
    [
      [undefined, 'allowed', 'rpc_error', 'unknown'],
      [true, 'allowed', 'rpc_error', 'unknown'],
    ],
  );
});

test('an error of the upstream is given again with the text of its data', TIMEOUT, async () => {
  const error = '{"message":"busy","code":-32000,"data":{"retry":1.0,"ticket":12345678901234567890}}';
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'busy', ...TOOL }] },
    request: (peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},"error":${error}}`),
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (let n = 0; n < 2; n++) {
    const { answer } = await client.request('tools/call', keyed('up__busy', 'k'));
    assert.equal(responseText('1', answer), `{"jsonrpc":"2.0","id":1,"error":${error}}`);
  }
  assert.equal(memory.requests('tools/call').length, 1);
});

/** A store in memory whose next reply gets lost, or that is out of reach until its next use. */
class LosingStore extends MemoryKeyedCallStore {
  losesReply = false;
  isAway = false;

  override async claim(...claimed: Parameters<MemoryKeyedCallStore['claim']>): Promise<ClaimAnswer> {
    const answer = await super.claim(...claimed);
    if (!this.losesReply) return answer;
    this.losesReply = false;
    throw new GatewayError('store-unavailable');
  }

  override async end(...ended: Parameters<MemoryKeyedCallStore['end']>): Promise<void> {
    if (!this.isAway) return await super.end(...ended);
    this.isAway = false;
    throw new GatewayError('store-unavailable');
  }
}

for (const lost of ['the reply to its claim', 'the store of its end'] as const) {
  test(`a call that loses ${lost} has its answer at the next attempt`, TIMEOUT, async () => {
    const keyedStore = new LosingStore(() => undefined);
    const { memory, next } = holding();
    const { at, begin } = await calling(memory, { keyedStore });
    await using _ = at;
    const { session } = at.session();
    const send = () => endOf(begin(session, keyed('up__echo', 'k')).answer());
    keyedStore.losesReply = lost === 'the reply to its claim';
    keyedStore.isAway = !keyedStore.losesReply;
    if (keyedStore.losesReply) assert.equal(await send(), 'store-unavailable no');
    const answer = send();
    const { peer, request } = await next();
    peer.send(result(request, DONE));
    assert.equal(await answer, 'result');
    assert.equal(await send(), 'result');
    assert.equal(memory.requests('tools/call').length, 1);
  });
}

test('the time for which answers are kept is that of the config, at once', TIMEOUT, async () => {
  const { memory } = upstream();
  await using gateway = await testCore({ up: { memory } });
  await gateway.reload({ idempotency: { keepMs: 20 } });
  const client = await gateway.connect();
  assert.equal(await call(client, keyed('up__count', 'k')), 1);
  await waitUntil(async () => Number(await call(client, keyed('up__count', 'k'))) > 1);
});

test('a call whose user takes long to answer is not made again', TIMEOUT, async (t) => {
  const question = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 'ask', ...TOOL }] },
    request: (peer, request) => {
      const send = (value: object) => peer.send(result(request, { resultType: 'complete', ...value }));
      if (request.method === 'server/discover')
        return send({
          supportedVersions: ['2026-07-28'],
          capabilities: { tools: {} },
          ttlMs: 0,
          cacheScope: 'private',
        });
      const inputRequests = { a: { method: 'elicitation/create', params: question } };
      const isFirst = request.params?.raw('requestState') === undefined;
      send(isFirst ? { resultType: 'input_required', inputRequests, requestState: 's' } : { content: [], number: 1 });
    },
  });
  const timeouts = { ...UPSTREAM.timeouts, maxMs: 60_000 };
  await using gateway = await testCore({ up: { memory, era: 'modern', timeouts } });
  const { sessions } = gateway.config;
  await gateway.reload({ idempotency: { keepMs: 60_000 }, sessions: { ...sessions, parkMs: 60_000 } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  await client.result('tools/list');
  const time = stopTime(t);
  const asked = Promise.withResolvers<string>();
  const first = client.request('tools/call', keyed('up__ask', 'k'), {
    onMessage: (message) => {
      if (message.kind === 'request') asked.resolve(message.id);
    },
  });
  const id = await asked.promise;
  time.pass(540_000);
  assert.equal(await call(client, keyed('up__ask', 'k')), 'duplicate-call');
  client.answer(id, { action: 'accept', content: {} });
  assert.equal((await first).answer.kind, 'result');
});

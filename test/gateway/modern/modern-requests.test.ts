import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { type TestCore, testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result, type Script } from '../../support/memory-upstream.ts';
import { inputRequiredIn, type ModernOptions, type ModernReply, modernRequest } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { tokenOf } from '../../policy/policies.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS = ['echo', 'other'].map((name) => ({ name, inputSchema: { type: 'object' } }));
const FORM = { message: 'name?', requestedSchema: { type: 'object', properties: {} } };
const ASKS = { resultType: 'input_required', inputRequests: { name: { method: 'elicitation/create', params: FORM } } };
const DONE = { resultType: 'complete', content: [] };
const PAGE = { mode: 'url', elicitationId: '1', url: 'https://up.test/pay', message: 'Pay' };
const ANN: ModernOptions = { capabilities: { elicitation: { form: {}, url: {} } }, principal: tokenOf('ann') };
const NAMED = { name: { action: 'accept', content: {} } };

/** A modern upstream with two tools. */
function modern(call: NonNullable<Script['request']>): MemoryUpstream {
  return memoryUpstream({
    isRaw: true,
    lists: { tools: TOOLS },
    request: (peer, request) => {
      if (request.method === 'tools/call') return call(peer, request);
      const capabilities = { tools: {} };
      return peer.send(result(request, { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities }));
    },
  });
}

/** An upstream that asks in its first answer, with this state. */
function askingOnce(requestState: string): MemoryUpstream {
  return modern((peer, request) =>
    peer.send(result(request, request.params?.raw('requestState') === undefined ? { ...ASKS, requestState } : DONE)),
  );
}

function call(gateway: TestCore, members: object = {}, options = ANN, tool = 'up__echo'): Promise<ModernReply> {
  return modernRequest(gateway, 'tools/call', { ...toolCall(tool), ...members }, options).reply;
}

/** Returns the code of an error, as the gateway names it. */
const codeOf = ({ error }: ModernReply): unknown => Object(error?.data).code;

test('a request that cannot be read is answered, and does not reach an upstream', TIMEOUT, async () => {
  const memory = modern((peer, request) => peer.send(result(request, DONE)));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  assert.equal(codeOf(await modernRequest(gateway, 'nothing/here', {}, ANN).reply), 'method-not-found');
  assert.equal(codeOf(await call(gateway, { inputResponses: 1 })), 'invalid-params');
  assert.equal(codeOf(await call(gateway, { requestState: 1 })), 'invalid-params');
  assert.equal(codeOf(await call(gateway, { requestState: 'forged' })), 'invalid-state');
  assert.equal(memory.requests('tools/call').length, 0);
  assert.match(await gateway.metrics.text(), /^linkspan_requests_in_flight 0$/m);
});

//
test('a retry goes on with the upstream’s state, for its sender and request only', TIMEOUT, async () => {
  const memory = askingOnce('inner');
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const { requestState, inputRequests } = inputRequiredIn(await call(gateway));
  assert.deepEqual([Object.keys(inputRequests), requestState.includes('inner')], [['name'], false]);
  const retry = { requestState, inputResponses: NAMED };
  const bob = { ...ANN, principal: tokenOf('bob') };
  assert.equal(codeOf(await call(gateway, retry, bob)), 'invalid-state');
  assert.equal(codeOf(await call(gateway, retry, ANN, 'up__other')), 'invalid-state');
  assert.equal(memory.requests('tools/call').length, 1);
  assert.equal((await call(gateway, retry)).result?.['resultType'], 'complete');
  const { params } = memory.requests('tools/call')[1] ?? {};
  assert.deepEqual([params?.string('requestState'), params?.value('inputResponses')], ['inner', NAMED]);
});

test('questions with a state that is too long to seal are a fault of the upstream', TIMEOUT, async () => {
  const memory = askingOnce('s'.repeat(LIMITS.handleChars));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  assert.equal(codeOf(await call(gateway)), 'upstream-protocol');
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="handleChars"\} 1$/m);
});

// REL-17
test('an answer that names a question twice is a fault of the upstream', TIMEOUT, async () => {
  const question = JSON.stringify(ASKS.inputRequests.name);
  const asks = `{"resultType":"input_required","inputRequests":{"name":${question},"name":${question}}}`;
  const memory = modern((peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},"result":${asks}}`));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  assert.equal(codeOf(await call(gateway)), 'upstream-protocol');
});

test('a group has so many requests in flight as the config allows', TIMEOUT, async () => {
  const held: (() => void)[] = [];
  const memory = modern((peer, request) => void held.push(() => peer.send(result(request, DONE))));
  const limits = { inFlightPerSession: 2 };
  await using gateway = await testCore({ up: { memory, era: 'modern' } }, { limits });
  const replies = [call(gateway), call(gateway)];
  await memory.until(() => held[1]);
  assert.equal(codeOf(await call(gateway)), 'overloaded');
  const other = call(gateway, {}, { ...ANN, principal: tokenOf('bob') });
  await memory.until(() => held[2]);
  for (const answer of held) answer();
  for (const reply of await Promise.all([...replies, other])) assert.equal(reply.result?.['resultType'], 'complete');
  const next = call(gateway);
  (await memory.until(() => held[3]))();
  assert.equal((await next).result?.['resultType'], 'complete');
});

const UI = { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } } };
for (const [who, capabilities, entry] of [
  ['with MCP Apps alone', UI, {}],
  ['of an upstream that may ask nothing', { elicitation: {} }, { clientFeatures: [] }],
] as const) {
  test(`calls of a client ${who} share a process`, TIMEOUT, async () => {
    const answers: (() => void)[] = [];
    const memory = memoryUpstream({
      lists: { tools: TOOLS },
      request: (peer, request) => {
        if (request.method !== 'tools/call') return peer.send(result(request, {}));
        answers.push(() => peer.send(result(request, { content: [] })));
        if (answers.length === 2) for (const answer of answers) answer();
      },
    });
    await using gateway = await testCore({ up: { memory, ...entry } });
    const options = { ...ANN, capabilities };
    await modernRequest(gateway, 'tools/list', {}, options).reply;
    await Promise.all([call(gateway, {}, options), call(gateway, {}, options)]);
    assert.equal(memory.peers.length, 1);
  });
}

test('a legacy upstream is not promised changes of roots that no modern client reports', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: TOOLS } });
  await using gateway = await testCore({ up: { memory } });
  await call(gateway, {}, { ...ANN, capabilities: { roots: { listChanged: true } } });
  assert.deepEqual(memory.peers.map(({ capabilities }) => capabilities.raw('roots')).at(-1), '{}');
});

test('a call whose page was not opened is a failed tool, and is not sent again', TIMEOUT, async (t) => {
  // A wait for the visit would not end.
  stopTime(t);
  let hasPaid = false;
  const error = JSON.stringify({ code: RPC.urlElicitationRequired, message: 'pay', data: { elicitations: [PAGE] } });
  const memory = memoryUpstream({
    lists: { tools: TOOLS },
    request: (peer, request) => {
      if (request.method !== 'tools/call' || hasPaid) return peer.send(result(request, { content: [] }));
      return peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":${error}}`);
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const { requestState, inputRequests } = inputRequiredIn(await call(gateway));
  assert.deepEqual(
    Object.values(inputRequests).map(({ method }) => method),
    ['elicitation/create'],
  );
  const declined = await call(gateway, { requestState, inputResponses: { url1: { action: 'decline' } } });
  assert.equal(declined.result?.['isError'], true);
  assert.equal(memory.requests('tools/call').length, 1);
  // Without a word about the page, the upstream is asked again at once.
  hasPaid = true;
  assert.equal((await call(gateway, { requestState })).result?.['isError'], undefined);
  assert.equal(memory.requests('tools/call').length, 2);
});

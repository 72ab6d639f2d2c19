import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import type { Message } from '../../../src/protocol/jsonrpc.ts';
import { testCore, type TestCore, toolCall } from '../../support/core.ts';
import { modernUpstream, type Served } from '../../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, type Peer } from '../../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'echo', inputSchema: { type: 'object' } };
const CAPABILITIES = { elicitation: {} };
const FORM = { message: 'Who?', mode: 'form', requestedSchema: { type: 'object', properties: {} } };

/** An upstream whose calls are never answered, and ask `count` questions, with the ids q1, q2 and so on. */
function askingTimes(count: number) {
  const ask = (peer: Peer, id: string, about: number) =>
    peer.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'elicitation/create', params: FORM }), about);
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [TOOL] },
    request: (peer, request) => {
      for (let n = 1; n <= count; n++) ask(peer, `q${n}`, Number(request.id));
    },
  });
  const answersTo = (id: string) =>
    memory.peers.flatMap(({ received }) =>
      received.filter((one) => one.kind !== 'notification' && one.kind !== 'request' && one.id === `"${id}"`),
    );
  const answerTo = (id: string) => memory.until(() => answersTo(id)[0]);
  const askAgain = (id: string) => {
    const isCall = (one: Message) => 'method' in one && one.method === 'tools/call';
    const peer = memory.peers.find(({ received }) => received.some(isCall));
    const call = memory.requests('tools/call')[0];
    assert.ok(peer !== undefined && call !== undefined);
    ask(peer, id, Number(call.id));
  };
  return { memory, answersTo, answerTo, askAgain };
}

async function countOf(gateway: TestCore, limit: string): Promise<number> {
  const counted = new RegExp(`linkspan_limit_reached_total\\{limit="${limit}"\\} (\\d+)`);
  return Number(counted.exec(await gateway.metrics.text())?.[1] ?? 0);
}

test('limit questionsPerSession: a further question is refused until one is answered', TIMEOUT, async () => {
  const most = LIMITS.questionsPerSession;
  const { memory, answersTo, answerTo, askAgain } = askingTimes(most + 1);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: CAPABILITIES });
  const asked: string[] = [];
  const call = client.send('tools/call', toolCall('up__echo'), {
    id: '"call"',
    onMessage: (message) => {
      if (message.kind === 'request') asked.push(message.id);
    },
  });
  const refused = await answerTo(`q${most + 1}`);
  assert.equal(refused.kind === 'error' && refused.error.code, -32_603);
  assert.equal(asked.length, most);
  assert.equal(await countOf(gateway, 'questionsPerSession'), 1);
  client.answer(asked[0] ?? '', { action: 'decline' });
  assert.equal((await answerTo('q1')).kind, 'result');
  askAgain('later');
  await client.until(() => (asked.length > most ? true : undefined));
  assert.deepEqual(answersTo('later'), []);
  client.notify('notifications/cancelled', { requestId: 'call' });
  await call;
});

test('limit questionsPerCall: a modern client gets so many questions in one answer', TIMEOUT, async () => {
  const most = LIMITS.questionsPerCall;
  const { memory, answerTo } = askingTimes(most + 1);
  await using gateway = await testCore({ up: { memory } });
  const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__echo'), { capabilities: CAPABILITIES });
  const refused = await answerTo(`q${most + 1}`);
  assert.equal(refused.kind === 'error' && refused.error.code, -32_603);
  assert.equal(Object.keys(inputRequiredIn(await reply).inputRequests).length, most);
  assert.equal(await countOf(gateway, 'questionsPerCall'), 1);
});

test('limit questionsPerCall: an answer with more questions fails its call', TIMEOUT, async () => {
  const ask = ({ params }: Served) => {
    const count = LIMITS.questionsPerCall + (params['name'] === 'more' ? 1 : 0);
    const question = { method: 'elicitation/create', params: FORM };
    const inputRequests = Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, question]));
    return { resultType: 'input_required', inputRequests, requestState: 'inner' };
  };
  const tools = [TOOL, { ...TOOL, name: 'more' }];
  await using upstream = await modernUpstream({ tools, answers: { 'tools/call': ask } });
  await using gateway = await testCore({ up: upstream.config });
  const call = (name: string) => modernRequest(gateway, 'tools/call', toolCall(name), { capabilities: CAPABILITIES });
  const asked = inputRequiredIn(await call('up__echo').reply);
  assert.equal(Object.keys(asked.inputRequests).length, LIMITS.questionsPerCall);
  assert.match(JSON.stringify(await call('up__more').reply), /more than 64 questions.*upstream-protocol/);
  const client = await gateway.connect({ capabilities: CAPABILITIES });
  const { answer } = await client.request('tools/call', toolCall('up__more'));
  assert.match(JSON.stringify(answer), /upstream-protocol/);
  assert.equal(await countOf(gateway, 'questionsPerCall'), 2);
});

test('limit inputRounds: a call whose upstream asks again and again fails', TIMEOUT, async () => {
  const again = () => ({
    resultType: 'input_required',
    inputRequests: { k: { method: 'elicitation/create', params: FORM } },
    requestState: 'inner',
  });
  await using upstream = await modernUpstream({ tools: [TOOL], answers: { 'tools/call': again } });
  await using gateway = await testCore({ up: upstream.config });
  const client = await gateway.connect({ capabilities: CAPABILITIES });
  const { answer } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind === 'request') client.answer(message.id, { action: 'accept', content: {} });
    },
  });
  assert.equal(answer.kind, 'error');
  assert.match(JSON.stringify(answer), /upstream-protocol/);
  assert.equal(upstream.requests('tools/call').length, LIMITS.inputRounds);
  assert.equal(await countOf(gateway, 'inputRounds'), 1);
});

test('limit handleChars: a call whose upstream asks with a longer state fails', TIMEOUT, async () => {
  const ask = ({ params }: Served) => ({
    resultType: 'input_required',
    inputRequests: { k: { method: 'elicitation/create', params: FORM } },
    requestState: 'x'.repeat(params['name'] === 'long' ? LIMITS.handleChars : 1_000),
  });
  const tools = [TOOL, { ...TOOL, name: 'long' }];
  await using upstream = await modernUpstream({ tools, answers: { 'tools/call': ask } });
  await using gateway = await testCore({ up: upstream.config });
  const call = (name: string) => modernRequest(gateway, 'tools/call', toolCall(name), { capabilities: CAPABILITIES });
  inputRequiredIn(await call('up__echo').reply);
  assert.match(JSON.stringify((await call('up__long').reply).error), /upstream-protocol/);
  assert.equal(await countOf(gateway, 'handleChars'), 1);
});

test('limit clientCapabilityChars: a client that declares more is refused', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const sampling = { note: 'x'.repeat(LIMITS.clientCapabilityChars) };
  await assert.rejects(gateway.connect({ capabilities: { sampling } }), /-32602/);
  const { error } = await modernRequest(gateway, 'tools/list', {}, { capabilities: { sampling } }).reply;
  assert.equal(error?.code, -32_602);
  assert.equal(await countOf(gateway, 'clientCapabilityChars'), 2);
});

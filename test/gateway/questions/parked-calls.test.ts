import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Principal } from '../../../src/policy/principal.ts';
import { MemoryOutcomeStore } from '../../../src/store/memory/outcome-store.ts';
import { accepted, asker, formOf } from '../../support/asker.ts';
import { testCore, type TestCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, type ModernOptions, modernRequest, answersIn } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const HTTP = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
const FORM = { elicitation: { form: {} } };

const principal = (key: string): Principal => ({ key, label: key, scopes: [] });
const ANN = principal('ann');
const BOB = principal('bob');

function call(gateway: TestCore, nonce: string, retry: object = {}, options: ModernOptions = {}) {
  const params = { ...toolCall('up__ask', { nonce }), ...retry };
  return modernRequest(gateway, 'tools/call', params, { capabilities: FORM, ...options });
}

/** Parks a call. Returns its questions and its state. */
async function parkCall(gateway: TestCore, nonce: string, options: ModernOptions = {}) {
  const asked = inputRequiredIn(await call(gateway, nonce, {}, options).reply);
  // M-026
  assert.equal(asked.serverName, 'linkspan');
  return asked;
}

async function parkedCalls(gateway: TestCore): Promise<number> {
  return Number(/^linkspan_parked_calls (\d+)$/m.exec(await gateway.metrics.text())?.[1]);
}

function answers(requests: object, who: string): object {
  return Object.fromEntries(Object.keys(requests).map((key) => [key, accepted(who)]));
}

//
test('a retry with the answer gets the result of the call', TIMEOUT, async () => {
  const { memory, call: at } = asker();
  await using gateway = await testCore({ up: { memory } });
  const { inputRequests, requestState } = await parkCall(gateway, 'n');
  assert.deepEqual(Object.values(inputRequests), [{ method: 'elicitation/create', params: formOf('n') }]);
  assert.equal(await parkedCalls(gateway), 1);
  const { reply } = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'Ada') });
  assert.deepEqual(answersIn(await reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
  assert.equal(at('n').isCancelled, false);
  assert.equal(memory.requests('tools/call').length, 1);
  assert.equal(await parkedCalls(gateway), 0);
});

//
test('a retry at another replica continues the call while its owner exists', TIMEOUT, async () => {
  const { memory, call: at } = asker();
  const processes = new JoinedProcesses();
  await using first = await testCore({ up: { memory } }, {}, processes);
  // Replicas have the same keys, and each a state directory of its own.
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-replica-'));
  await cp(join(first.config.stateDir, 'keys.json'), join(stateDir, 'keys.json'));
  {
    await using second = await testCore({ up: { memory } }, { stateDir }, processes);
    const { inputRequests, requestState } = await parkCall(first, 'n');
    const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
    processes.blockage = new GatewayError('too-large', { executed: 'no' });
    const { error: blocked } = await call(second, 'n', retry).reply;
    const data = { code: 'too-large', executed: 'unknown', retryable: false };
    assert.deepEqual(blocked?.data, data, 'the call may have run');
    processes.blockage = undefined;
    assert.deepEqual(answersIn(await call(second, 'n', retry).reply), {
      nonce: 'n',
      answers: { q: [accepted('Ada')] },
    });
    // A client that has lost the answer may retry at any replica.
    assert.deepEqual(answersIn(await call(first, 'n', retry).reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
    assert.equal(memory.requests('tools/call').length, 1);
    assert.equal(await parkedCalls(first), 0);

    const hungUp = await parkCall(first, 'm');
    const nothing = call(second, 'm', { requestState: hungUp.requestState, inputResponses: {} });
    const again = inputRequiredIn(await nothing.reply);
    const last = call(second, 'm', {
      requestState: again.requestState,
      inputResponses: answers(again.inputRequests, 'Bo'),
    });
    assert.deepEqual(answersIn(await last.reply), { nonce: 'm', answers: { q: [accepted('Bo')] } });
    assert.equal(at('m').isCancelled, false);
  }
  await rm(stateDir, { recursive: true });
  const { inputRequests, requestState } = await parkCall(first, 'o');
  await first.restart();
  const { error } = await call(first, 'o', { requestState, inputResponses: answers(inputRequests, 'Cy') }).reply;
  assert.equal(error?.code, -31017, 'the call may have run');
});

//
test('a retry at a process that stops gets the end of the call, or that it is unknown', TIMEOUT, async () => {
  const { memory } = asker();
  const processes = new JoinedProcesses();
  processes.outcomes = new MemoryOutcomeStore(() => undefined);
  await using gateway = await testCore({ up: { memory } }, {}, processes);
  const ended = await parkCall(gateway, 'n');
  const retry = { requestState: ended.requestState, inputResponses: answers(ended.inputRequests, 'Ada') };
  const first = answersIn(await call(gateway, 'n', retry).reply);
  const cut = await parkCall(gateway, 'm');
  // The store cannot be reached any more.
  processes.outcomes.settle = async () => false;
  gateway.core.parked.close();
  assert.deepEqual(answersIn(await call(gateway, 'n', retry).reply), first);
  const { error } = await call(gateway, 'm', {
    requestState: cut.requestState,
    inputResponses: answers(cut.inputRequests, 'Bo'),
  }).reply;
  assert.equal(error?.code, -31017, 'the call may have run');
});

const NOT_ANSWERS: Readonly<Record<string, unknown>> = {
  'no object': 'Ada',
  'an action that does not exist': { action: 'maybe' },
  null: null,
  'an answer to something else': { roots: [] },
};

// N-45
suite('an invalid response is refused, and the call stays parked', () => {
  for (const [name, response] of Object.entries(NOT_ANSWERS)) {
    test(name, TIMEOUT, async () => {
      const { memory, call: at } = asker();
      await using gateway = await testCore({ up: { memory } });
      const { inputRequests, requestState } = await parkCall(gateway, 'n');
      const [key = ''] = Object.keys(inputRequests);
      const { error } = await call(gateway, 'n', { requestState, inputResponses: { [key]: response } }).reply;
      assert.equal(error?.code, -32602);
      assert.match(
        error?.message ?? '',
        new RegExp(`inputResponses\\.${key} is no valid answer to elicitation/create`),
      );
      assert.equal(await parkedCalls(gateway), 1);
      assert.equal(at('n').isCancelled, false);
      const { reply } = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'Ada') });
      assert.deepEqual(answersIn(await reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
      assert.equal(memory.requests('tools/call').length, 1);
    });
  }
});

//
suite('a requestState of another request is refused and not forwarded', () => {
  const wrong: Readonly<Record<string, (gateway: TestCore, retry: object) => ReturnType<typeof modernRequest>>> = {
    'of another principal': (gateway, retry) => call(gateway, 'n', retry, { principal: BOB }),
    'at another endpoint': (gateway, retry) =>
      modernRequest(
        gateway,
        'tools/call',
        { ...toolCall('ask', { nonce: 'n' }), ...retry },
        { capabilities: FORM, principal: ANN, view: 'up' },
      ),
    'for another tool': (gateway, retry) =>
      modernRequest(
        gateway,
        'tools/call',
        { ...toolCall('up__other', { nonce: 'n' }), ...retry },
        { capabilities: FORM, principal: ANN },
      ),
    'for other arguments': (gateway, retry) => call(gateway, 'm', retry, { principal: ANN }),
    'with another method': (gateway, retry) =>
      modernRequest(
        gateway,
        'prompts/get',
        { ...toolCall('up__ask', { nonce: 'n' }), ...retry },
        { capabilities: FORM, principal: ANN },
      ),
    'that is none at all': (gateway, retry) => call(gateway, 'n', { ...retry, requestState: 'x' }, { principal: ANN }),
    'that is a number': (gateway, retry) => call(gateway, 'n', { ...retry, requestState: 7 }, { principal: ANN }),
  };
  for (const [name, make] of Object.entries(wrong)) {
    test(name, TIMEOUT, async () => {
      const { memory, call: at } = asker();
      await using gateway = await testCore({ up: { memory } });
      const { inputRequests, requestState } = await parkCall(gateway, 'n', { principal: ANN });
      const received = memory.peers.map((peer) => peer.received.length);
      const { error } = await make(gateway, { requestState, inputResponses: answers(inputRequests, 'Eve') }).reply;
      assert.equal(error?.code, -32602);
      assert.deepEqual(at('n').answers, new Map());
      assert.deepEqual(
        memory.peers.slice(0, received.length).map((peer) => peer.received.length),
        received,
      );
      // Its own client can still use it.
      const retry = { requestState, inputResponses: answers(inputRequests, 'Ann') };
      const ended = answersIn(await call(gateway, 'n', retry, { principal: ANN }).reply);
      assert.deepEqual(ended, { nonce: 'n', answers: { q: [accepted('Ann')] } });
    });
  }

  test('with any single bit flipped', TIMEOUT, async () => {
    const { memory, call: at } = asker();
    await using gateway = await testCore({ up: { memory } });
    const { inputRequests, requestState } = await parkCall(gateway, 'n');
    const inputResponses = answers(inputRequests, 'Eve');
    const bytes = Buffer.from(requestState, 'latin1');
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const flipped = Buffer.from(bytes);
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      const { reply } = call(gateway, 'n', { requestState: flipped.toString('latin1'), inputResponses });
      const { error } = await reply;
      assert.equal(error?.code, -32602, `bit ${bit}: ${JSON.stringify(error)}`);
    }
    assert.deepEqual(at('n').answers, new Map());
    assert.equal(memory.requests('tools/call').length, 1);
    assert.equal(await parkedCalls(gateway), 1);
  });

  test('from before a restart, which ended the call', TIMEOUT, async () => {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory } });
    const { inputRequests, requestState } = await parkCall(gateway, 'n');
    await gateway.restart();
    assert.equal(memory.open.size, 0);
    assert.equal(await parkedCalls(gateway), 0);
    const { reply } = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'Ada') });
    assert.equal((await reply).error?.code, -31017, 'what the call did is not known');
    assert.equal(memory.requests('tools/call').length, 1);
  });
});

//
test('repeated retries answer the question once, and each gets the call’s result', TIMEOUT, async () => {
  const { memory, call: at } = asker();
  await using gateway = await testCore({ up: { memory } });
  const { inputRequests, requestState } = await parkCall(gateway, 'n');
  const retries = Array.from({ length: 20 }, (_, i) =>
    call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, `number ${i}`) }),
  );
  const ended = await Promise.all(retries.map(async ({ reply }) => answersIn(await reply)));
  for (const one of ended) assert.deepEqual(one, ended[0]);
  assert.equal(at('n').answers.get('q')?.length, 1);
  const late = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'late') });
  assert.deepEqual(answersIn(await late.reply), ended[0]);
  assert.equal(memory.requests('tools/call').length, 1);
});

//
test('a question asked during a round is part of the next round', TIMEOUT, async () => {
  const { memory, ask, call: at, finish } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'a', 'elicitation/create', formOf('a'));
  const one = inputRequiredIn(await first.reply);
  ask('n', 'b', 'elicitation/create', formOf('b'));
  const second = call(gateway, 'n', {
    requestState: one.requestState,
    inputResponses: answers(one.inputRequests, 'A'),
  });
  const two = inputRequiredIn(await second.reply);
  assert.deepEqual(Object.values(two.inputRequests), [{ method: 'elicitation/create', params: formOf('b') }]);
  const third = call(gateway, 'n', { requestState: two.requestState, inputResponses: answers(two.inputRequests, 'B') });
  await memory.until(() => at('n').answers.size === 2 || undefined);
  finish('n');
  assert.deepEqual(answersIn(await third.reply), { nonce: 'n', answers: { a: [accepted('A')], b: [accepted('B')] } });
});

//
test('a retry of the last answered round gets its answer, and one before it is refused', TIMEOUT, async () => {
  const { memory, ask, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  const retryOf = ({ requestState, inputRequests }: ReturnType<typeof inputRequiredIn>) =>
    call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'A') }).reply;
  ask('n', 'a', 'elicitation/create', formOf('a'));
  const one = inputRequiredIn(await first.reply);
  const toSecond = retryOf(one);
  await memory.until(() => at('n').answers.has('a') || undefined);
  ask('n', 'b', 'elicitation/create', formOf('b'));
  const two = inputRequiredIn(await toSecond);
  assert.deepEqual(inputRequiredIn(await retryOf(one)), two);
  const toThird = retryOf(two);
  await memory.until(() => at('n').answers.has('b') || undefined);
  ask('n', 'c', 'elicitation/create', formOf('c'));
  const three = inputRequiredIn(await toThird);
  assert.deepEqual(inputRequiredIn(await retryOf(two)), three);
  assert.match(JSON.stringify(await retryOf(one)), /"invalid-state"/);
  assert.match(JSON.stringify(await retryOf(one)), /continue with the last state/);
});

//
suite('a call that waits for its client', () => {
  test('unanswered questions are asked again, and unknown responses are ignored', TIMEOUT, async () => {
    const { memory, ask, call: at, finish } = asker({ isQuiet: true });
    await using gateway = await testCore({ up: { memory } });
    const first = call(gateway, 'n');
    await memory.until(() => memory.requests('tools/call')[0]);
    for (const question of ['a', 'b']) ask('n', question, 'elicitation/create', formOf(question));
    const both = inputRequiredIn(await first.reply);
    const [some = '', other = ''] = Object.keys(both.inputRequests);
    const half = { requestState: both.requestState, inputResponses: { [some]: accepted('A'), unheard: accepted('E') } };
    const rest = inputRequiredIn(await call(gateway, 'n', half).reply);
    assert.deepEqual(rest.inputRequests, { [other]: both.inputRequests[other] });
    await memory.until(() => at('n').answers.size === 1 || undefined);
    const whole = {
      requestState: rest.requestState,
      inputResponses: { [other]: accepted('B'), [some]: accepted('Z') },
    };
    const last = call(gateway, 'n', whole);
    await memory.until(() => at('n').answers.size === 2 || undefined);
    finish('n');
    assert.deepEqual(answersIn(await last.reply), { nonce: 'n', answers: { a: [accepted('A')], b: [accepted('B')] } });
  });

  test('a retry without responses gets the same questions again', TIMEOUT, async () => {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory } });
    const first = await parkCall(gateway, 'n');
    const again = inputRequiredIn(await call(gateway, 'n', { requestState: first.requestState }).reply);
    assert.deepEqual(again.inputRequests, first.inputRequests);
    const retry = { requestState: again.requestState, inputResponses: answers(again.inputRequests, 'Ada') };
    assert.deepEqual(answersIn(await call(gateway, 'n', retry).reply), {
      nonce: 'n',
      answers: { q: [accepted('Ada')] },
    });
  });
});

//
test('answers that come with a call are not sent to a legacy upstream in its params', TIMEOUT, async () => {
  const { memory } = asker();
  await using gateway = await testCore({ up: { memory } });
  const { reply } = call(gateway, 'n', { inputResponses: { user_who: accepted('Ada') } });
  assert.deepEqual(answersIn(await reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
  assert.deepEqual(memory.requests('tools/call')[0]?.params?.keys(), ['name', 'arguments']);
});

test('the log level of a retry reaches the upstream before its answers', TIMEOUT, async () => {
  const { memory, ask, call: at, finish } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const { peer } = at('n');
  const received = peer.received.length;
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  const second = call(gateway, 'n', retry, { logLevel: 'debug' });
  await memory.until(() => at('n').answers.get('q'));
  const [setting, answer] = peer.received.slice(received);
  assert.equal(setting?.kind === 'request' && setting.params?.string('level'), 'debug');
  assert.equal(answer?.kind, 'result');
  const params = JSON.stringify({ level: 'debug', data: 'x' });
  peer.send(`{"jsonrpc":"2.0","method":"notifications/message","params":${params}}`);
  finish('n');
  await second.reply;
  assert.equal(second.messages.length, 1);
});

//
test('a question is not asked again of a retry that declares no capability for it', TIMEOUT, async () => {
  const { memory, ask, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  for (const question of ['a', 'b']) ask('n', question, 'elicitation/create', formOf(question));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const [some = ''] = Object.keys(inputRequests);
  const half = { requestState, inputResponses: { [some]: accepted('A') } };
  const { error } = await call(gateway, 'n', half, { capabilities: {} }).reply;
  assert.partialDeepStrictEqual(error, {
    code: -32021,
    data: { requiredCapabilities: { elicitation: { form: {} } } },
  });
  assert.deepEqual(at('n').answers.get('a'), [accepted('A')]);
  assert.partialDeepStrictEqual(at('n').answers.get('b'), [{ error: { code: -32601 } }]);
  assert.equal(await parkedCalls(gateway), 0);
});

//
test('a result that arrived before the retry is returned to the retry', TIMEOUT, async () => {
  const { memory, finish } = asker();
  await using gateway = await testCore({ up: { memory } });
  const { inputRequests, requestState } = await parkCall(gateway, 'n');
  finish('n');
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  assert.partialDeepStrictEqual(answersIn(await call(gateway, 'n', retry).reply), { nonce: 'n' });
  assert.equal(memory.requests('tools/call').length, 1);
  assert.equal(await parkedCalls(gateway), 0);
});

//
test('an ended call is removed after its time, also if its client has come back', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, ask, finish } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await time.passUntil(first.reply, 10));
  finish('n');
  await time.passUntil(
    waitUntil(async () => (await parkedCalls(gateway)) === 0),
    1,
  );
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  time.pass(30_000);
  assert.partialDeepStrictEqual(answersIn(await call(gateway, 'n', retry).reply), { nonce: 'n' });
  time.pass(60_000);
  const { error } = await call(gateway, 'n', retry).reply;
  assert.equal(error?.code, -31017, 'the call has run');
});

//
test('a repeated retry whose answer is not kept gets that its outcome is unknown', TIMEOUT, async () => {
  const { memory, calls, call: at } = asker();
  await using gateway = await testCore({ up: { memory } });
  const { inputRequests, requestState } = await parkCall(gateway, 'n');
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  assert.partialDeepStrictEqual(answersIn(await call(gateway, 'n', retry).reply), { nonce: 'n' });
  assert.partialDeepStrictEqual(answersIn(await call(gateway, 'n', retry).reply), { nonce: 'n' });
  // As much as is kept for a principal.
  for (const nonce of ['a', 'b', 'c']) {
    const { requestState: state } = await parkCall(gateway, nonce);
    await memory.until(() => calls.get(nonce));
    const { peer, request } = at(nonce);
    peer.send(
      result(request, { content: [{ type: 'text', text: 'x'.repeat(LIMITS.endedCallBytesPerPrincipal / 5) }] }),
    );
    await call(gateway, nonce, { requestState: state, inputResponses: {} }).reply;
  }
  const { error } = await call(gateway, 'n', retry).reply;
  assert.equal(error?.code, -31017, error?.message);
  assert.equal(memory.requests('tools/call').length, 4);
});

//
suite('a client that does not retry', () => {
  const cases = [
    { method: 'elicitation/create', params: formOf('n'), expected: { action: 'cancel' } },
    { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 }, expected: { error: { code: -32603 } } },
    { method: 'roots/list', params: {}, expected: { error: { code: -32603 } } },
  ];
  for (const { method, params, expected } of cases) {
    test(`${method} is cancelled for it, and then the call is cancelled`, TIMEOUT, async (t) => {
      const time = stopTime(t);
      const { memory, ask, finish, call: at } = asker({ isQuiet: true });
      await using gateway = await testCore({ up: { memory } });
      const capabilities = { elicitation: {}, sampling: {}, roots: {} };
      const first = call(gateway, 'n', {}, { capabilities });
      await memory.until(() => memory.requests('tools/call')[0]);
      ask('n', 'q', method, params);
      inputRequiredIn(await time.passUntil(first.reply, 10));
      time.pass(gateway.config.sessions.parkMs - 1);
      assert.equal(at('n').answers.size, 0);
      await time.passUntil(
        memory.until(() => at('n').answers.get('q')),
        1_000,
      );
      assert.partialDeepStrictEqual(at('n').answers.get('q'), [expected]);
      await time.passUntil(untilCancelled(at('n')), 1_000);
      await time.passUntil(
        waitUntil(async () => (await parkedCalls(gateway)) === 0),
        1,
      );
      // The connection it had to itself is there for the next, once the upstream is done with it.
      finish('n');
      const before = memory.peers.length;
      const next = call(gateway, 'm', {}, { capabilities });
      await memory.until(() => memory.requests('tools/call')[1]);
      ask('m', 'q', method, params);
      inputRequiredIn(await time.passUntil(next.reply, 10));
      assert.equal(memory.peers.length, before);
    });
  }
});

//
test('a retry that comes too late for its answers gets the end of the call', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, ask, finish, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await time.passUntil(first.reply, 10));
  time.pass(gateway.config.sessions.parkMs);
  await time.passUntil(
    memory.until(() => at('n').answers.get('q')),
    1_000,
  );
  const retry = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'late') });
  await nextTurn();
  // The client is there again, so nothing cancels the call.
  time.pass(10_000);
  ask('n', 'r', 'elicitation/create', formOf('r'));
  const again = inputRequiredIn(await time.passUntil(retry.reply, 10));
  const last = call(gateway, 'n', {
    requestState: again.requestState,
    inputResponses: answers(again.inputRequests, 'Ada'),
  });
  await time.passUntil(
    memory.until(() => at('n').answers.get('r')),
    10,
  );
  finish('n');
  const { answers: got } = Object(answersIn(await last.reply));
  assert.deepEqual(got, { q: [{ action: 'cancel' }], r: [accepted('Ada')] });
});

async function untilCancelled(one: { readonly isCancelled: boolean }): Promise<void> {
  await waitUntil(() => one.isCancelled);
}

//
test('a client that disconnects from its retry ends the call at the upstream', TIMEOUT, async () => {
  const { memory, ask, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  const second = call(gateway, 'n', retry);
  await memory.until(() => at('n').answers.get('q'));
  second.call.cancel('the client disconnected');
  await untilCancelled(at('n'));
  assert.ok((await second.reply).error !== undefined);
  assert.equal(await parkedCalls(gateway), 0);
});

//
suite('a question that may belong to several calls reaches no client', () => {
  test('if one principal’s calls share a connection', TIMEOUT, async () => {
    const { memory, ask, call: at, finish } = asker({ isQuiet: true });
    await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
    const calls = ['a', 'b'].map((nonce) => call(gateway, nonce));
    await memory.until(() => memory.requests('tools/call')[1]);
    assert.equal(at('a').peer, at('b').peer);
    ask('a', 'q', 'elicitation/create', formOf('a'));
    await memory.until(() => at('a').answers.get('q'));
    assert.partialDeepStrictEqual(at('a').answers.get('q'), [{ error: { code: -32602 } }]);
    for (const nonce of ['a', 'b']) finish(nonce);
    for (const { reply, messages } of calls) {
      answersIn(await reply);
      assert.deepEqual(messages, []);
    }
  });
});

for (const isolation of ['session', 'principal', 'call'] as const) {
  //
  test(`with a connection per ${isolation}, each principal gets questions of its own calls`, TIMEOUT, async () => {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory, isolation } });
    const options = [ANN, BOB].map((one) => ({ principal: one, capabilities: FORM }));
    const asked = await Promise.all(options.map((one) => parkCall(gateway, `of-${one.principal.key}`, one)));
    for (const [i, { inputRequests, requestState }] of asked.entries()) {
      const own = options[i] ?? {};
      const key = options[i]?.principal.key ?? '';
      assert.deepEqual(
        Object.values(inputRequests).map(({ params }) => params),
        [formOf(`of-${key}`)],
      );
      const retry = { requestState, inputResponses: answers(inputRequests, key) };
      const stranger = options[1 - i] ?? {};
      assert.equal((await call(gateway, `of-${key}`, retry, stranger).reply).error?.code, -32602);
      const ended = answersIn(await call(gateway, `of-${key}`, retry, own).reply);
      assert.deepEqual(ended, { nonce: `of-${key}`, answers: { q: [accepted(key)] } });
    }
  });
}

//
test('a shared upstream gets no capabilities, and its questions reach no client', TIMEOUT, async () => {
  const { memory, finish, call: at } = asker();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const calls = [ANN, BOB].map((one) => call(gateway, one.key, {}, { principal: one }));
  for (const { key } of [ANN, BOB]) {
    await memory.until(() => memory.requests('tools/call')[1]);
    await memory.until(() => at(key).answers.get('q'));
    assert.partialDeepStrictEqual(at(key).answers.get('q'), [{ error: { code: -32602 } }]);
    finish(key);
  }
  for (const { reply } of calls)
    assert.partialDeepStrictEqual(answersIn(await reply), { answers: { q: [{ error: {} }] } });
  assert.deepEqual(
    memory.peers.map(({ capabilities }) => capabilities.toString()),
    ['{}'],
  );
});

for (const isolation of ['session', 'call'] as const) {
  //
  test(`with a connection per ${isolation}, concurrent questions of one client stay apart`, TIMEOUT, async () => {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory, isolation } });
    const nonces = ['a', 'b', 'c'];
    const asked = await Promise.all(nonces.map((nonce) => parkCall(gateway, nonce)));
    for (const [i, { inputRequests }] of asked.entries()) {
      assert.deepEqual(
        Object.values(inputRequests).map(({ params }) => params),
        [formOf(nonces[i] ?? '')],
      );
    }
  });
}

//
test('an upstream that waits with a progress token gets increasing progress', TIMEOUT, async (t) => {
  const { memory, ask, finish } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  t.mock.timers.enable({ apis: ['setInterval'] });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', { ...formOf('n'), _meta: { progressToken: 'mine' } });
  const { inputRequests } = inputRequiredIn(await first.reply);
  assert.deepEqual(Object.values(inputRequests), [{ method: 'elicitation/create', params: formOf('n') }]);
  for (let second = 0; second < 35; second++) t.mock.timers.tick(1_000);
  const progress = await memory.until(() => {
    const received = memory.peers.flatMap((peer) => peer.received);
    const messages = received.flatMap((one) =>
      one.kind === 'notification' && one.method.endsWith('/progress') ? [one] : [],
    );
    return messages.length === 3 ? messages.map(({ params }) => params) : undefined;
  });
  const numbers = progress.map((params) => Number(params?.raw('progress')));
  assert.deepEqual(
    numbers,
    numbers.toSorted((a, b) => a - b),
  );
  assert.equal(new Set(numbers).size, 3);
  assert.deepEqual(
    progress.map((params) => params?.string('progressToken')),
    ['mine', 'mine', 'mine'],
  );
  finish('n');
});

//
test('concurrent questions form one round, and one retry ends the call', TIMEOUT, async () => {
  const { memory, ask, call: at, finish } = asker({ isQuiet: true, isAttributed: true });
  await using gateway = await testCore({ up: { memory, target: HTTP } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  for (const question of ['a', 'b', 'c']) ask('n', question, 'elicitation/create', formOf(question));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  assert.equal(Object.keys(inputRequests).length, 3);
  const retry = call(gateway, 'n', { requestState, inputResponses: answers(inputRequests, 'Ada') });
  await memory.until(() => at('n').answers.size === 3 || undefined);
  finish('n');
  const { answers: got } = Object(answersIn(await retry.reply));
  assert.deepEqual(got, { a: [accepted('Ada')], b: [accepted('Ada')], c: [accepted('Ada')] });
});

//
test('a question withdrawn before it was sent makes no round', TIMEOUT, async () => {
  const { memory, ask, finish, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'a', 'elicitation/create', formOf('a'));
  const one = inputRequiredIn(await first.reply);
  ask('n', 'b', 'elicitation/create', formOf('b'));
  at('n').peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b n"}}');
  const retry = { requestState: one.requestState, inputResponses: answers(one.inputRequests, 'A') };
  const second = call(gateway, 'n', retry);
  await memory.until(() => at('n').answers.get('a'));
  finish('n');
  assert.deepEqual(answersIn(await second.reply), { nonce: 'n', answers: { a: [accepted('A')] } });
});

//
test('a question that is open when the call ends is cancelled for the client', TIMEOUT, async () => {
  const { memory, ask, finish, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  inputRequiredIn(await first.reply);
  finish('n');
  await memory.until(() => at('n').answers.get('q'));
  assert.deepEqual(at('n').answers.get('q'), [{ action: 'cancel' }]);
});

//
test('a cancelled duplicate does not end the call of the later retry', TIMEOUT, async () => {
  const { memory, ask, finish, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n', {}, { progressToken: 'first' });
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  const before = call(gateway, 'n', retry);
  await memory.until(() => at('n').answers.get('q'));
  const after = call(gateway, 'n', retry, { progressToken: 'after' });
  // Progress goes to the latest retry.
  for (let progress = 1; after.messages.length === 0; progress++) {
    const params = { progress, progressToken: Number(at('n').request.id) };
    at('n').peer.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params }));
    await nextTurn();
  }
  before.call.cancel('the client disconnected');
  finish('n');
  assert.deepEqual(answersIn(await after.reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
});

//
test('a cancelled retry does not end the call of an equal retry before it', TIMEOUT, async () => {
  const { memory, ask, finish, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  const progress = async (wanted: { readonly messages: readonly unknown[] }, from: number) => {
    for (let n = from; wanted.messages.length === 0; n++) {
      const params = { progress: n, progressToken: Number(at('n').request.id) };
      at('n').peer.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params }));
      await nextTurn();
    }
  };
  const retries = ['a', 'b', 'c'].map((token) => call(gateway, 'n', retry, { progressToken: token }));
  const [a, b, c] = retries;
  assert.ok(a !== undefined && b !== undefined && c !== undefined);
  await memory.until(() => at('n').answers.get('q'));
  await progress(c, 1);
  b.call.cancel('the client disconnected');
  c.call.cancel('the client disconnected');
  assert.equal(at('n').isCancelled, false);
  // Progress goes to the one that is left.
  await progress(a, 1_000_000);
  assert.deepEqual(b.messages, []);
  finish('n');
  assert.deepEqual(answersIn(await a.reply), { nonce: 'n', answers: { q: [accepted('Ada')] } });
});

//
test('the last one of several equal retries that is cancelled ends the call', TIMEOUT, async () => {
  const { memory, ask, call: at } = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const first = call(gateway, 'n');
  await memory.until(() => memory.requests('tools/call')[0]);
  ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const retry = { requestState, inputResponses: answers(inputRequests, 'Ada') };
  const retries = [1, 2].map(() => call(gateway, 'n', retry));
  await memory.until(() => at('n').answers.get('q'));
  for (const { call: request } of retries) request.cancel('the client disconnected');
  await untilCancelled(at('n'));
  assert.equal(await parkedCalls(gateway), 0);
});

//
test('a question of a request that may not require input reaches no client', TIMEOUT, async () => {
  const answers: unknown[] = [];
  const memory = memoryUpstream({
    capabilities: { prompts: {}, completions: {} },
    lists: { prompts: [{ name: 'p', arguments: [{ name: 'a' }] }] },
    request: (peer, request) => {
      const question = { id: 'q', method: 'elicitation/create', params: formOf('n') };
      peer.send(JSON.stringify({ jsonrpc: '2.0', ...question }), Number(request.id));
    },
    response: (peer, response) => {
      answers.push(response);
      for (const request of memory.requests('completion/complete')) {
        peer.send(result(request, { completion: { values: ['x'] } }));
      }
    },
  });
  await using gateway = await testCore({ up: { memory, target: HTTP } });
  const params = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
  const completed = await modernRequest(gateway, 'completion/complete', params, { capabilities: FORM }).reply;
  assert.partialDeepStrictEqual(completed.result, { resultType: 'complete', completion: { values: ['x'] } });
  assert.partialDeepStrictEqual(answers, [{ kind: 'error', error: { code: -32602 } }]);
});

for (const [kind, target] of [
  ['stdio', undefined],
  ['http', HTTP],
] as const) {
  suite(`invariant 8: the number of parked calls of one principal, over ${kind}`, () => {
    const where = target === undefined ? {} : { target };

    test('is bounded, and the call beyond it fails and is cancelled', TIMEOUT, async () => {
      const { memory, call: at } = asker({ isAttributed: target !== undefined });
      const limits = { parkedPerPrincipal: 3 };
      await using gateway = await testCore({ up: { memory, ...where } }, { limits });
      for (const nonce of ['a', 'b', 'c']) await parkCall(gateway, nonce);
      const { error } = await call(gateway, 'd').reply;
      assert.partialDeepStrictEqual(error, { code: -31013, data: { executed: 'unknown', retryable: false } });
      await untilCancelled(at('d'));
      // Other principals are not affected.
      await parkCall(gateway, 'e', { principal: BOB });
    });

    test('does not affect the principal’s other requests', TIMEOUT, async () => {
      const { memory } = asker({ isAttributed: target !== undefined });
      const limits = { inFlightPerSession: 3 };
      await using gateway = await testCore({ up: { memory, ...where } }, { limits });
      for (const nonce of ['a', 'b', 'c', 'd']) await parkCall(gateway, nonce);
      const other = modernRequest(gateway, 'tools/call', toolCall('up__other'), { capabilities: FORM });
      assert.equal((await other.reply).error, undefined);
    });

    test('does not count requests in flight, which are bounded separately', TIMEOUT, async () => {
      const { memory, finish } = asker({ isQuiet: true, isAttributed: target !== undefined });
      const limits = { inFlightPerSession: 3 };
      await using gateway = await testCore({ up: { memory, ...where } }, { limits });
      const calls = ['a', 'b', 'c'].map((nonce) => call(gateway, nonce));
      await memory.until(() => memory.requests('tools/call')[2]);
      assert.equal((await call(gateway, 'd').reply).error?.code, -31013);
      for (const nonce of ['a', 'b', 'c']) finish(nonce);
      for (const { reply } of calls) answersIn(await reply);
    });
  });
}

test('one principal parks all calls of an upstream but the last eighth, and keeps them', TIMEOUT, async () => {
  const { memory, call: at } = asker({ isAttributed: true });
  const auth = { jwt: [], apiKeys: [{ name: 'ann', sha256: '00' }] };
  const limits = { parkedPerUpstream: 8 };
  await using gateway = await testCore({ up: { memory, target: HTTP } }, { auth, limits });
  const nonces = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
  const questions = [];
  for (const nonce of nonces) questions.push(await parkCall(gateway, nonce, { principal: ANN }));
  const { error } = await call(gateway, 'h', {}, { principal: ANN }).reply;
  assert.match(error?.message ?? '', /7 calls of yours at upstream "up" wait for answers already, and the rest of 8/);
  await untilCancelled(at('h'));
  await parkCall(gateway, 'i', { principal: BOB });
  const full = await call(gateway, 'j', {}, { principal: principal('cy') }).reply;
  assert.match(full.error?.message ?? '', /8 calls at upstream "up" wait for answers already/);
  assert.match(await gateway.metrics.text(), /^linkspan_fair_share_refusals_total\{pool="parked"\} 1$/m);
  const [first] = questions;
  assert.ok(first !== undefined);
  const retry = { requestState: first.requestState, inputResponses: answers(first.inputRequests, 'Ada') };
  assert.deepEqual(answersIn(await call(gateway, 'a', retry, { principal: ANN }).reply), {
    nonce: 'a',
    answers: { q: [accepted('Ada')] },
  });
  await parkCall(gateway, 'k', { principal: principal('cy') });
});

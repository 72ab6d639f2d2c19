import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { accessOf } from '../../policy/policies.ts';
import { memoryUpstream, type MemoryUpstream, result, type Script } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { calling, DONE, ECHO, endOf, modern, sentCalls } from './calling.ts';

const TIMEOUT = { timeout: 120_000 };
const MODERN = { upstream: { era: 'modern' } } as const;
const COMPLETE = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
const FORM = { message: 'name?', requestedSchema: { type: 'object', properties: {} } };
const QUESTION = { name: { method: 'elicitation/create', params: FORM } };
const ASKS = { resultType: 'input_required', inputRequests: QUESTION, requestState: 's' };
const OLD_SCHEMA = { code: RPC.headerMismatch, message: 'old' };
/** An access policy that lists the tool, and denies the calls of these tests. */
const OTHER_CALLS = accessOf({ some: { upstreams: ['up'], when: 'args.a == 1' } }, [{ anyone: true, roles: ['some'] }]);

/** A modern upstream with a tool, a prompt and a resource. */
function offering(
  request: NonNullable<Script['request']>,
  tools: () => readonly object[] = () => [ECHO],
): MemoryUpstream {
  const capabilities = { tools: {}, prompts: {}, resources: {} };
  return memoryUpstream({
    isRaw: true,
    listsOf: () => ({ tools: tools(), prompts: [{ name: 'p' }], resources: [{ uri: 'lib://a', name: 'a' }] }),
    request: (peer, one) => {
      if (one.method !== 'server/discover') return request(peer, one);
      return peer.send(result(one, { ...COMPLETE, supportedVersions: ['2026-07-28'], capabilities }));
    },
  });
}

test('questions end the call of a modern client, which is not asked meanwhile', TIMEOUT, async () => {
  const memory = modern((peer, request) => peer.send(result(request, ASKS)));
  const { at, begin } = await calling(memory, MODERN);
  await using _ = at;
  const { stream, answer } = begin(at.group({ capabilities: { elicitation: {} } }).client);
  const outcome = await answer();
  assert.ok(outcome.kind === 'input-required');
  const { inputRequests, requestState } = outcome.inputRequired;
  assert.deepEqual([inputRequests.map(({ key }) => key), requestState, stream.messages], [['name'], '"s"', []]);
  assert.equal(sentCalls(memory).length, 1);
});

test('a session that cannot be asked gets a failed tool, or an error of a prompt', TIMEOUT, async () => {
  const { at, begin } = await calling(
    offering((peer, request) => peer.send(result(request, ASKS))),
    MODERN,
  );
  await using _ = at;
  const { session } = at.session();
  const called = await begin(session).answer();
  assert.ok(called.kind === 'result');
  assert.match(called.result, /needs elicitation\/create of the client.*"isError":true/);
  assert.equal(await endOf(begin(session, { name: 'up__p' }, 'prompts/get').answer()), 'client-unreachable undefined');
});

test('an upstream that asks in each answer is not called without end', TIMEOUT, async () => {
  const memory = modern((peer, request) => peer.send(result(request, ASKS)));
  const { at, begin, limitsHit, upstream } = await calling(memory, MODERN);
  await using _ = at;
  const { session, stream } = at.session({ capabilities: { elicitation: {} } });
  const call = begin(session);
  const answered = new Set<string>();
  const end = endOf(call.answer());
  for (let round = 1; round <= LIMITS.inputRounds; round++) {
    const asked = await call.stream.until(() =>
      call.stream.messages.find((one) => one.kind === 'request' && !answered.has(one.id)),
    );
    assert.ok(asked.kind === 'request');
    answered.add(asked.id);
    session.onResponse(asked.id, { kind: 'result', result: '{"action":"decline"}' });
  }
  assert.equal(await end, 'upstream-protocol unknown');
  assert.deepEqual([limitsHit, stream.messages], [['inputRounds'], []]);
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [LIMITS.inputRounds, 0]);
});

//
test('a call that is asked to come again has one slot at a time, and frees it', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = modern((peer, request) => {
    const isAgain = request.params?.raw('requestState') !== undefined;
    peer.send(
      result(request, isAgain ? { ...COMPLETE, ...DONE } : { resultType: 'input_required', requestState: 's' }),
    );
  });
  const { at, begin, upstream } = await calling(memory, { upstream: { era: 'modern', concurrency: 1 } });
  await using _ = at;
  const ends = [at.session(), at.session()].map(({ session }) => endOf(begin(session).answer()));
  assert.deepEqual(await time.passUntil(Promise.all(ends), 50), ['result', 'result']);
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [4, 0]);
});

const PAGE = { mode: 'url', message: 'Sign in', url: 'https://up.test/login' };
for (const [what, again] of [
  [
    'asks for it again',
    {
      resultType: 'input_required',
      inputRequests: { p: { method: 'elicitation/create', params: PAGE } },
      requestState: 's',
    },
  ],
  ['asks for a retry alone', { resultType: 'input_required', requestState: 's' }],
] as const) {
  for (const isDone of [true, false]) {
    const end = isDone ? 'waits for the user' : 'ends with the page';
    test(`a page is shown once; an upstream that ${what} ${end}`, TIMEOUT, async (t) => {
      const time = stopTime(t);
      const asks = { ...again, inputRequests: { p: { method: 'elicitation/create', params: PAGE } } };
      const memory: MemoryUpstream = modern((peer, request) => {
        const sent = sentCalls(memory).length;
        const isOver = isDone && sent > 2 * LIMITS.inputRounds;
        peer.send(result(request, sent === 1 ? asks : isOver ? { ...COMPLETE, ...DONE } : again));
      });
      const { at, begin, limitsHit, upstream } = await calling(memory, { upstream: { era: 'modern', concurrency: 1 } });
      await using _ = at;
      const { session } = at.session({ capabilities: { elicitation: { url: {} } } });
      const call = begin(session);
      const answer = call.answer();
      const asked = await call.stream.until(() => call.stream.messages.find(({ kind }) => kind === 'request'));
      assert.ok(asked.kind === 'request');
      session.onResponse(asked.id, { kind: 'result', result: '{"action":"accept"}' });
      const ended = await time.passUntil(answer, 1_000);
      if (isDone) assert.equal(ended.kind, 'result');
      else {
        assert.ok(ended.kind === 'error');
        assert.equal(ended.error.code, RPC.urlElicitationRequired);
        assert.partialDeepStrictEqual(ended.error.data, { elicitations: [{ mode: 'url', url: PAGE.url }] });
      }
      assert.deepEqual(
        call.stream.messages.filter(({ kind }) => kind === 'request'),
        [asked],
      );
      assert.deepEqual([limitsHit, upstream.limiter.activeCount], [[], 0]);
      const responses = sentCalls(memory)
        .slice(1)
        .map(({ params }) => params?.raw('inputResponses'));
      assert.ok(
        responses
          .slice(0, 'inputRequests' in again ? undefined : 1)
          .every((one) => one === '{"p":{"action":"accept"}}'),
      );
    });
  }
}

test('a call with headers of an old schema is sent once more, by the new one', TIMEOUT, async () => {
  const error = JSON.stringify(OLD_SCHEMA);
  for (const [next, end] of Object.entries({
    listed: 'result',
    gone: 'upstream-protocol no',
    denied: 'unknown-tool undefined',
  })) {
    let isOld = false;
    const memory: MemoryUpstream = offering(
      (peer, request) => {
        if (sentCalls(memory).length > 1) return peer.send(result(request, { ...COMPLETE, ...DONE }));
        isOld = true;
        if (next === 'denied') at.gate.setConfig(OTHER_CALLS);
        return peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":${error}}`);
      },
      () => (isOld && next === 'gone' ? [] : [ECHO]),
    );
    const { at, begin } = await calling(memory, MODERN);
    await using _ = at;
    const call = begin(at.session().session);
    call.exchange.setTool(call.to);
    assert.equal(await endOf(call.answer()), end, next);
    assert.equal(sentCalls(memory).length, next === 'listed' ? 2 : 1, next);
  }
});

test('an answer that its request does not allow is a fault of the upstream', TIMEOUT, async () => {
  let answer: object = {};
  const { at, begin } = await calling(
    offering((peer, request) => peer.send(result(request, answer))),
    MODERN,
  );
  await using _ = at;
  const client = at.group().client;
  const read = () => endOf(begin(client, { uri: 'lib://a' }, 'resources/read').answer());
  for (const resultType of ['task', 'half']) {
    answer = { resultType, taskId: '1', status: 'working' };
    assert.equal(await read(), 'upstream-protocol unknown', resultType);
  }
  answer = { ...ASKS, inputRequests: { name: 1 } };
  assert.equal(await read(), 'upstream-protocol unknown', 'malformed');
  const completion = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
  answer = ASKS;
  assert.equal(await endOf(begin(client, completion, 'completion/complete').answer()), 'upstream-protocol unknown');
});

test('a modern upstream decides on tasks, so it gets no member that asks for one', TIMEOUT, async () => {
  const memory = modern((peer, request) => peer.send(result(request, { ...COMPLETE, ...DONE })));
  const { at, begin } = await calling(memory, MODERN);
  await using _ = at;
  assert.equal(await endOf(begin(at.session().session, { name: 'up__echo', task: { ttl: 1 } }).answer()), 'result');
  assert.equal(sentCalls(memory)[0]?.params?.raw('task'), undefined);
});

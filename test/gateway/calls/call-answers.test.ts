import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { toOutcome } from '../../../src/gateway/calls/call-answers.ts';
import { META } from '../../../src/protocol/meta.ts';
import { errorAnswer } from '../../../src/protocol/jsonrpc.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { calling } from './calling.ts';

const TIMEOUT = { timeout: 120_000 };
/** The longest time that an error waits for lists. */
const LISTS_WAIT_MS = 2_000; // subject
const COMPLETION = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
const PROMPTS = { prompts: [{ name: 'p' }] };
const NO_METHOD = errorAnswer(RPC.methodNotFound, 'none');
const DONE = { kind: 'result', result: '{"contents":[]}' } as const;

for (const { declared, method, code, isEmpty } of [
  { declared: {}, method: 'completion/complete', code: RPC.methodNotFound, isEmpty: true },
  { declared: {}, method: 'completion/complete', code: RPC.internalError, isEmpty: false },
  { declared: { completions: {} }, method: 'completion/complete', code: RPC.methodNotFound, isEmpty: false },
  { declared: {}, method: 'prompts/get', code: RPC.methodNotFound, isEmpty: false },
]) {
  const outcome = isEmpty ? 'is an empty completion' : 'stays an error';
  const given = `${method}, completions ${'completions' in declared ? 'declared' : 'not declared'}`;
  test(`error ${code} ${outcome} (${given})`, TIMEOUT, async () => {
    const memory = memoryUpstream({ lists: PROMPTS, capabilities: { prompts: {}, ...declared } });
    const { at, begin, links, upstream, answering } = await calling(memory);
    await using _ = at;
    const { session } = at.session();
    const { exchange } = begin(session, method === 'prompts/get' ? { name: 'up__p' } : COMPLETION, method);
    const link = await links.openFor(exchange, session, upstream);
    const answer = await toOutcome(answering, exchange, link, undefined, errorAnswer(code, 'none'));
    const empty = { kind: 'result', result: '{"completion":{"values":[]}}' };
    assert.deepEqual(answer, isEmpty ? empty : errorAnswer(code, 'none'));
  });
}

test('an answer waits for the record of the state, and has the loss of an earlier one', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: PROMPTS, capabilities: { prompts: {} } });
  const { at, begin, links, upstream, answering } = await calling(memory);
  await using _ = at;
  const { session } = at.session();
  const { exchange } = begin(session, { name: 'up__p' }, 'prompts/get');
  const link = await links.openFor(exchange, session, upstream);
  const recorded = Promise.withResolvers<void>();
  session.stateRecords = new Map([['up', recorded.promise]]);
  const waiting = Promise.resolve(toOutcome(answering, exchange, link, undefined, DONE));
  let isAnswered = false;
  void waiting.then(() => (isAnswered = true));
  // Reported by the first result after it, and not by an error.
  session.stateLosses = new Map([['up', { upstream: 'up', reason: 'crash', at: 'now' }]]);
  session.stateRecords.delete('up');
  assert.deepEqual(await toOutcome(answering, exchange, link, undefined, NO_METHOD), NO_METHOD);
  assert.equal(isAnswered, false);
  recorded.resolve();
  const first = await waiting;
  assert.ok(first.kind === 'result');
  const { _meta: meta } = JSON.parse(first.result);
  assert.deepEqual(meta, { [META.stateLost]: { upstream: 'up', reason: 'crash', at: 'now' } });
  assert.deepEqual(await toOutcome(answering, exchange, link, undefined, DONE), DONE);
});

test('the error of an unlisted resource waits for running lists, for 2 s at most', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let held: Promise<void> | undefined;
  const common = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { resources: [{ uri: 'lib://a', name: 'a' }] },
    hold: () => held ?? Promise.resolve(),
    request: (peer, request) => {
      const capabilities = { resources: {} };
      peer.send(result(request, { ...common, supportedVersions: ['2026-07-28'], capabilities }));
    },
  });
  const { at, begin, links, upstream, answering } = await calling(memory, { upstream: { era: 'modern' } });
  await using _ = at;
  const opening = at.session().session;
  const link = await links.openFor(begin(opening, { uri: 'up+lib://a' }, 'resources/read').exchange, opening, upstream);
  // The lists for clients with these capabilities are not known yet.
  const capabilities = { elicitation: {} };
  const { promise, resolve } = Promise.withResolvers<void>();
  held = promise;
  const wait = async (uri: string, from: Parameters<typeof begin>[0]) => {
    const { exchange } = begin(from, { uri }, 'resources/read');
    await toOutcome(answering, exchange, link, undefined, errorAnswer(RPC.invalidParams, 'none'));
    return performance.now();
  };
  const { client } = at.group({ capabilities });
  const beganMs = performance.now();
  assert.equal(await wait('up+lib://a', client), beganMs, 'it is listed');
  const { session } = at.session({ capabilities });
  assert.equal(await wait('up+lib://b', session), beganMs, 'a session reads the same error');
  const late = wait('up+lib://b', client);
  for (const ms of [LISTS_WAIT_MS - 1, 1]) {
    time.pass(ms);
    await nextTurn();
  }
  assert.equal((await late) - beganMs, LISTS_WAIT_MS);
  const other = wait('up+lib://b', at.group({ capabilities }).client);
  resolve();
  assert.equal((await other) - beganMs, LISTS_WAIT_MS, 'the lists have come');
});

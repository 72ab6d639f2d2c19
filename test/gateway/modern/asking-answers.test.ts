import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ResultTranslator } from '../../../src/gateway/forward/result-translator.ts';
import { unsealState } from '../../../src/gateway/handles/request-state.ts';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import { AskingAnswers } from '../../../src/gateway/modern/asking-answers.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { UrlElicitations } from '../../../src/gateway/questions/url-elicitations.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const DONE: Answer = { kind: 'result', result: '{}' };
const FORM = { message: 'name?', requestedSchema: { type: 'object', properties: {} } };
const QUESTION = { key: 'name', method: 'elicitation/create', params: RawObject.of(FORM) };

/** Answers to a call of a modern client at `up`. */
async function asking() {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  const sealer = await Sealer.open(new MemoryKeyStore());
  const limits: string[] = [];
  const urlElicitations = new UrlElicitations(() => undefined);
  const questionPolicy = new QuestionPolicy({
    rulesOf: (id) => at.upstreams.get(id)?.config,
    metrics: at.metrics,
    log: at.log,
  });
  const answers = new AskingAnswers({
    sealer,
    owners: new JoinedProcesses().join(),
    questionPolicy,
    urlElicitations,
    translator: new ResultTranslator(RawObject.EMPTY, questionPolicy),
    onLimit: (limit) => limits.push(limit),
  });
  const { client, group } = at.group({ capabilities: { elicitation: { form: {}, url: {} } } });
  const { exchange } = at.exchange(client, group);
  exchange.upstream = 'up';
  const asks = (requestState: string) =>
    answers.toAnswer(exchange, {
      kind: 'input-required',
      inputRequired: { inputRequests: [QUESTION], requestState, rest: RawObject.EMPTY },
    });
  return { at, answers, sealer, client, exchange, asks, limits, urlElicitations };
}

const visited = (...actions: readonly string[]) =>
  RawObject.of(Object.fromEntries(actions.map((action, i) => [`url${i + 1}`, { action }])));

test('an answer that asks nothing is the answer of the upstream, at once', async () => {
  const { at, answers, exchange } = await asking();
  await using _ = at;
  assert.equal(answers.toAnswer(exchange, DONE), DONE);
});

test('questions go out with the state that their retry needs, sealed for its sender', async () => {
  const { at, sealer, exchange, client, asks } = await asking();
  await using _ = at;
  const answer = await asks('"inner"');
  assert.ok(answer.kind === 'result');
  const { inputRequests, requestState } = JSON.parse(answer.result);
  assert.deepEqual([Object.keys(inputRequests), requestState.includes('inner')], [['name'], false]);
  const { kind, ...state } = await unsealState(sealer, JSON.stringify(requestState), client.caller, exchange.request);
  assert.equal(kind, 'relay');
  assert.deepEqual([Object(state).upstream, Object(state).inner], ['up', '"inner"']);
});

test('a state that is too long to seal is a fault of its upstream', async () => {
  const { at, asks, limits } = await asking();
  await using _ = at;
  await assert.rejects(async () => await asks(JSON.stringify('s'.repeat(LIMITS.handleChars))), {
    code: 'upstream-protocol',
  });
  assert.deepEqual(limits, ['handleChars']);
});

test('a retry waits for the pages that it says were opened, and for no others', async (t) => {
  const time = stopTime(t);
  const { at, answers, client, urlElicitations } = await asking();
  await using _ = at;
  const state = { upstream: 'up', ids: ['1', '2'] };
  const wait = (responses: RawObject | undefined) =>
    answers.awaitVisits(client, 'tools/call', state, responses, 20_000);
  assert.equal(await wait(undefined), undefined);
  let ended = 0;
  const waiting = wait(visited('accept', 'accept')).finally(() => ended++);
  urlElicitations.complete('up', client.caller.principal.key, '1');
  await nextTurn();
  assert.equal(ended, 0);
  urlElicitations.complete('up', client.caller.principal.key, '2');
  assert.equal(await waiting, undefined);
  const late = answers
    .awaitVisits(client, 'tools/call', { ...state, ids: ['3'] }, visited('accept'), 20_000)
    .finally(() => ended++);
  time.pass(19_999);
  await nextTurn();
  assert.equal(ended, 1);
  time.pass(1);
  assert.equal(await late, undefined);
});

test('a page that was not opened is a failed tool, or the failure of another request', async () => {
  const { at, answers, client } = await asking();
  await using _ = at;
  const refuse = (method: string) =>
    answers.awaitVisits(client, method, { upstream: 'up', ids: ['1', '2'] }, visited('accept', 'decline'), 20_000);
  const failed = await refuse('tools/call');
  assert.ok(failed?.kind === 'result');
  assert.equal(JSON.parse(failed.result).isError, true);
  await assert.rejects(refuse('prompts/get'), { code: 'client-unreachable' });
});

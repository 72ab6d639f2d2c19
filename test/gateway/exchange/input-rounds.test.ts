import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import type { ClientQuestion } from '../../../src/gateway/exchange/client-question.ts';
import { InputRounds } from '../../../src/gateway/exchange/input-rounds.ts';
import { RawObject } from '../../../src/json/json.ts';
import { stopTime } from '../../support/stopped-time.ts';

/** Questions within this time are part of the same round. */
const COALESCE_MS = 20; // subject
const [ACCEPTED, DECLINED, CANCELLED] = ['accept', 'decline', 'cancel'].map((action) => JSON.stringify({ action }));

/** Returns the parameters of a form with one field. */
function formFor(field: string): RawObject {
  return RawObject.of({ message: field, requestedSchema: { type: 'object', properties: { [field]: {} } } });
}

/** A question of an upstream, with the answers and the progress that it gets. */
function questionFor(field: string, own: Partial<Pick<ClientQuestion, 'method' | 'onProgress'>> = {}) {
  const answers: string[] = [];
  const progress: unknown[] = [];
  let withdraw: (() => void) | undefined;
  const question: ClientQuestion = {
    upstream: 'up',
    method: 'elicitation/create',
    params: formFor(field),
    answer: (answer) => answers.push(answer.kind === 'result' ? answer.result : answer.error.message),
    onProgress: (params) => progress.push(params.value('progress')),
    onWithdrawn: (run) => {
      // As a connection does, which keeps one callback for each question.
      withdraw = run;
    },
    ...own,
  };
  return { question, answers, progress, withdraw: () => withdraw?.() };
}

const keysOf = (rounds: InputRounds) => rounds.openQuestions().map(({ key }) => key);

/** Asks a question. Returns its key, after withdrawing the question. */
function keyOf(rounds: InputRounds): string | undefined {
  const { question, withdraw } = questionFor('name');
  rounds.add(question);
  const [key] = keysOf(rounds);
  withdraw();
  return key;
}

test('questions within 20 ms are one round, in the order of their arrival', async (t) => {
  const time = stopTime(t);
  const rounds = new InputRounds(() => undefined);
  let isAsked = false;
  void rounds.nextQuestions().then(() => (isAsked = true));
  const isAskedAfter = async (ms: number) => {
    time.pass(ms);
    await nextTurn();
    return isAsked;
  };
  rounds.add(questionFor('zip').question);
  assert.equal(await isAskedAfter(COALESCE_MS - 1), false);
  rounds.add(questionFor('age').question);
  assert.equal(await isAskedAfter(1), true);
  assert.deepEqual(keysOf(rounds), ['user_zip', 'user_age']);
  isAsked = false;
  void rounds.nextQuestions().then(() => (isAsked = true));
  assert.equal(await isAskedAfter(COALESCE_MS), false, 'the round has them all');
  rounds.add(questionFor('name').question);
  assert.equal(await isAskedAfter(COALESCE_MS), true);
  assert.deepEqual(keysOf(rounds), ['user_zip', 'user_age', 'user_name']);
});

test('a withdrawn question is neither asked nor answered', async (t) => {
  const time = stopTime(t);
  const rounds = new InputRounds(() => undefined);
  const [gone, left] = [questionFor('gone'), questionFor('left')];
  let isAsked = false;
  void rounds.nextQuestions().then(() => (isAsked = true));
  rounds.add(gone.question);
  gone.withdraw();
  time.pass(COALESCE_MS);
  await nextTurn();
  assert.equal(isAsked, false);
  rounds.add(left.question);
  assert.deepEqual(keysOf(rounds), ['user_left']);
  rounds.answer(RawObject.parse(`{"user_gone":${ACCEPTED},"user_left":${DECLINED}}`));
  assert.deepEqual([gone.answers, left.answers], [[], [DECLINED]]);
});

test('transferred questions keep their keys, and only their new rounds answer them', () => {
  const rounds = new InputRounds(() => undefined, RawObject.parse(`{"user_later":${ACCEPTED}}`));
  const [asked, gone, later] = [questionFor('name'), questionFor('gone'), questionFor('later')];
  for (const { question } of [asked, gone]) rounds.add(question);
  const moved = rounds.transfer();
  gone.withdraw();
  assert.deepEqual([keysOf(rounds), keysOf(moved)], [[], ['user_name']]);
  rounds.cancelAll('the call is over');
  rounds.answer(RawObject.parse(`{"user_name":${ACCEPTED}}`));
  assert.deepEqual(asked.answers, []);
  // The request itself contained this response.
  moved.add(later.question);
  moved.add(questionFor('name').question);
  assert.deepEqual(keysOf(moved), ['user_name', 'user_name_2']);
  moved.answer(RawObject.parse(`{"user_name":${DECLINED}}`));
  assert.deepEqual([asked.answers, gone.answers, later.answers], [[DECLINED], [], [ACCEPTED]]);
});

test('a question is answered once, and asked again as long as it has no response', async () => {
  const rounds = new InputRounds(() => undefined);
  const [name, age] = [questionFor('name'), questionFor('age')];
  for (const { question } of [name, age]) rounds.add(question);
  assert.deepEqual(keysOf(rounds), ['user_name', 'user_age']);
  rounds.answer(RawObject.parse(`{"user_name":${ACCEPTED}}`));
  assert.equal(await rounds.nextQuestions(), 'asked');
  assert.deepEqual(keysOf(rounds), ['user_age']);
  rounds.answer(RawObject.parse(`{"user_name":${DECLINED},"user_age":${DECLINED}}`));
  rounds.cancelAll('the call is over');
  assert.deepEqual([name.answers, age.answers], [[ACCEPTED], [DECLINED]]);
});

test('an open question gets progress that grows, also after it was transferred', () => {
  const rounds = new InputRounds(() => undefined);
  const [answered, open] = [questionFor('name'), questionFor('age')];
  const silent = questionFor('zip', { onProgress: undefined });
  for (const { question } of [answered, silent, open]) rounds.add(question);
  rounds.answer(RawObject.parse(`{"user_name":${ACCEPTED}}`));
  rounds.reportWaiting();
  rounds.reportWaiting();
  rounds.transfer().reportWaiting();
  assert.deepEqual([answered.progress, open.progress, silent.progress], [[], [1, 2, 3], []]);
});

test('an invalid response is refused before it is given to its question', () => {
  const rounds = new InputRounds(() => undefined);
  const { question, answers } = questionFor('name');
  rounds.add(question);
  const invalid = RawObject.of({ user_name: { action: 'maybe' } });
  assert.throws(() => rounds.assertValid(invalid, 'up', 'task'), { code: 'invalid-params' });
  rounds.assertValid(RawObject.of({ other: 1 }), 'up', 'task');
  assert.deepEqual([answers, keysOf(rounds)], [[], ['user_name']]);
});

test('at the end, forms are cancelled and other questions fail', () => {
  const rounds = new InputRounds(() => undefined);
  const [form, sampling] = [questionFor('name'), questionFor('name', { method: 'sampling/createMessage' })];
  for (const { question } of [form, sampling]) rounds.add(question);
  rounds.cancelAll('the call is over');
  assert.deepEqual([form.answers, sampling.answers, keysOf(rounds)], [[CANCELLED], ['the call is over'], []]);
});

// N-22
test('the keys of endless questions of one call differ, and cost the same', () => {
  const rounds = new InputRounds(() => undefined);
  const keys = Array.from({ length: 20_000 }, () => keyOf(rounds));
  assert.deepEqual(keys.slice(0, 3), ['user_name', 'user_name_2', 'user_name_3']);
  assert.equal(new Set(keys).size, keys.length);
  // Keys with numbers of their own take no steps over earlier ones.
  assert.equal(keys.at(-1), 'question_19000');
  assert.equal(keyOf(rounds.transfer()), 'question_19001');
});

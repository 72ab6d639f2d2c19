import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InputRounds } from '../../../src/gateway/exchange/input-rounds.ts';
import { RawObject } from '../../../src/json/json.ts';

const FORM = RawObject.of({ message: 'name', requestedSchema: { type: 'object', properties: { name: {} } } });

/** Asks a question. Returns its key, after withdrawing the question. */
function keyOf(rounds: InputRounds): string | undefined {
  let withdraw: () => void = () => undefined;
  rounds.add({
    upstream: 'up',
    method: 'elicitation/create',
    params: FORM,
    answer: () => undefined,
    onProgress: undefined,
    onWithdrawn: (run) => {
      withdraw = run;
    },
  });
  const [{ key } = {}] = rounds.openQuestions();
  withdraw();
  return key;
}

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

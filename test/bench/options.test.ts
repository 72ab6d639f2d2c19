import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readOptions } from '../../bench/options.ts';

const HERE = new URL('../..', import.meta.url).pathname;

test('without options, the cost of a request is measured for this checkout alone', () => {
  const { suite, against, checkout, subjects } = readOptions([]);
  assert.equal(suite, 'request');
  assert.equal(against, undefined);
  assert.equal(`${checkout.replace(/\/$/, '')}/`, HERE);
  assert.ok(subjects.every(({ id }) => id !== 'gateway-before'));
});

test('--against adds the other gateway to the subjects, also where some are named', () => {
  const { subjects } = readOptions(['--against', HERE, '--subjects', 'nginx,gateway']);
  assert.deepEqual(
    subjects.map(({ id }) => id),
    ['nginx', 'gateway', 'gateway-before'],
  );
});

const WRONG = [
  { args: ['--growth', '--hostile'], says: /two runs/ },
  { args: ['--against', '/nowhere'], says: /--against takes the folder of a checkout, not "\/nowhere"/ },
  { args: ['--gateway', '/nowhere'], says: /--gateway takes the folder/ },
  { args: ['--only', 'smal'], says: /--only knows small, / },
  { args: ['--rounds', '0'], says: /above 0/ },
];

for (const { args, says } of WRONG) {
  test(`${args.join(' ')} is refused with the reason`, () => {
    assert.throws(() => readOptions(args), { name: 'TypeError', message: says });
  });
}

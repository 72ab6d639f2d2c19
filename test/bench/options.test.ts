import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { readOptions } from '../../bench/options.ts';
import { shortened } from '../support/test-name.ts';

const HERE = new URL('../..', import.meta.url).pathname;

test('without options, the cost of a request is measured for this checkout alone', () => {
  const { suite, against, checkout, subjects } = readOptions([]);
  assert.equal(suite, 'request');
  assert.deepEqual(against, []);
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

test('--against with several folders adds a gateway for each, named by its folder', () => {
  const dir = mkdtempSync(join(tmpdir(), 'linkspan-bench-options-'));
  try {
    for (const name of ['off-a', 'off-b']) {
      mkdirSync(join(dir, name, 'src'), { recursive: true });
      writeFileSync(join(dir, name, 'src/main.ts'), '');
    }
    const folders = ['off-a', 'off-b'].map((name) => join(dir, name));
    const { against, subjects } = readOptions(['--against', folders.join(','), '--subjects', 'gateway']);
    assert.deepEqual(
      against.map(({ folder }) => folder),
      folders,
    );
    assert.deepEqual(
      subjects.map(({ id }) => id),
      ['gateway', 'off-a', 'off-b'],
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test('without --slice, each round opens its connections anew', () => {
  assert.equal(readOptions([]).sliceMs, undefined);
  assert.equal(readOptions(['--slice', '100']).sliceMs, 100);
});

const WRONG = [
  { args: ['--against', `${HERE},${HERE}`], says: /--against takes folders of different names/ },
  { args: ['--slice', '0'], says: /above 0/ },
  { args: ['--growth', '--hostile'], says: /two runs/ },
  { args: ['--against', '/nowhere'], says: /--against takes the folder of a checkout, not "\/nowhere"/ },
  { args: ['--gateway', '/nowhere'], says: /--gateway takes the folder/ },
  { args: ['--only', 'smal'], says: /--only knows small, / },
  { args: ['--rounds', '0'], says: /above 0/ },
];

for (const { args, says } of WRONG) {
  test(`${shortened(args.join(' '))} is refused with the reason`, () => {
    assert.throws(() => readOptions(args), { name: 'TypeError', message: says });
  });
}

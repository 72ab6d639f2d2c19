import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FEATURES } from './matrix/words.ts';
import { PENDING, REQUIREMENTS } from './requirements.ts';

/** Text that begins with numbers, as the names of tests do, in tables too: `T-005 T-006 …`. */
const NAMED = /['"`]((?:[A-Z]+-?\d+ )*[TLMX]-\d{3}\b(?: [A-Z]+-?\d+\b)*)/g;

const ROOT = import.meta.dirname;
const files = globSync('**/*.ts', { cwd: ROOT }).filter((file) => !/^requirements(?:\.test)?\.ts$/.test(file));

/** Number → files with a test of it. */
const tested = new Map<string, Set<string>>();
for (const file of files) {
  for (const [, numbers = ''] of readFileSync(join(ROOT, file), 'utf8').matchAll(NAMED)) {
    for (const id of numbers.split(' ')) tested.set(id, (tested.get(id) ?? new Set()).add(file));
  }
}

const known = new Set(REQUIREMENTS.map(({ id }) => id));

test('every requirement of the protocol has a test that names it', (t) => {
  for (const [id, why] of Object.entries(PENDING)) t.diagnostic(`pending: ${id}: ${why}`);
  const missing = REQUIREMENTS.filter(
    ({ id, matrix }) => !tested.has(id) && matrix === undefined && !Object.hasOwn(PENDING, id),
  );
  assert.deepEqual(
    missing.map(({ id, says, link }) => `${id} ${says} (${link})`),
    [],
  );
});

test('no test names a requirement that there is not', () => {
  const strangers = [...tested].filter(([id]) => /^[TLMX]-/.test(id) && !known.has(id));
  assert.deepEqual(
    strangers.map(([id, where]) => `${id} in ${[...where].join(', ')}`),
    [],
  );
  assert.deepEqual(
    Object.keys(PENDING).filter((id) => !known.has(id)),
    [],
  );
});

test('requirements are numbered without gaps, and each says what and where', () => {
  const expected = [
    ['T', 42],
    ['L', 18],
    ['M', 30],
    ['X', 48],
  ] as const;
  const ids = expected.flatMap(([letter, count]) =>
    Array.from({ length: count }, (_, i) => `${letter}-${String(i + 1).padStart(3, '0')}`),
  );
  assert.deepEqual(
    REQUIREMENTS.map(({ id }) => id),
    ids,
  );
  for (const { id, says, link, matrix } of REQUIREMENTS) {
    assert.ok(says !== '' && link.startsWith('https://modelcontextprotocol.io/'), id);
    for (const feature of matrix ?? []) assert.ok(FEATURES.includes(feature), `${id}: ${feature}`);
  }
});

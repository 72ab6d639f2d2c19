import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { FEATURES } from './matrix/words.ts';
import { PENDING, REQUIREMENTS } from './requirements.ts';
import { NUMBER } from './support/test-name.ts';

/** Matches a line above a test, or above a row of its table, with the numbers that it proves: `// T-005 T-006`. */
const TAG = new RegExp(String.raw`^\s*// (${NUMBER}(?: ${NUMBER})*)$`, 'gm');
/** Matches a comment that begins as a tag does. */
const CODE = /^\s*\/\/ ([A-Z]+-\d+)\b/gm;
/** Matches the name of a test that begins with a number. */
const NAMED = new RegExp(String.raw`\b(?:test|suite)\(\s*['"\`](${NUMBER})\b`, 'g');

const ROOT = import.meta.dirname;
const files = globSync('**/*.ts', { cwd: ROOT }).filter((file) => !/^requirements(?:\.test)?\.ts$/.test(file));

/** The files with a test of each number. */
const tested = new Map<string, Set<string>>();
for (const file of files) {
  for (const [, numbers = ''] of readFileSync(join(ROOT, file), 'utf8').matchAll(TAG)) {
    for (const id of numbers.split(' ')) tested.set(id, (tested.get(id) ?? new Set()).add(file));
  }
}

/** Requirements that programs measure: `npm run load`, `npm run soak`, and `npm run bench -- --growth --only connections`. */
const MEASURED = ['REL-35', 'REL-36', 'N-66'];

const known = new Set(REQUIREMENTS.map(({ id }) => id));

/** The sentence of each requirement that is not part of the specification. */
const ours = new Map(
  [...readFileSync(join(ROOT, '../docs/requirements.md'), 'utf8').matchAll(/^\| `([^`]+)` \| (.+) \|$/gm)].map(
    ([, id = '', says = '']) => [id, says] as const,
  ),
);

test('every requirement of the protocol has a test with its number', (t) => {
  for (const [id, why] of Object.entries(PENDING)) t.diagnostic(`pending: ${id}: ${why}`);
  const missing = REQUIREMENTS.filter(
    ({ id, matrix }) => !tested.has(id) && matrix === undefined && !Object.hasOwn(PENDING, id),
  );
  assert.deepEqual(
    missing.map(({ id, says, link }) => `${id} ${says} (${link})`),
    [],
  );
});

test('every number above a test is in a table of requirements', () => {
  assert.ok(tested.size > 150);
  for (const file of files) {
    for (const [, code = ''] of readFileSync(join(ROOT, file), 'utf8').matchAll(CODE)) {
      assert.match(code, new RegExp(`^${NUMBER}$`), `${file} has a test of ${code}`);
    }
  }
  const strangers = [...tested].filter(([id]) => !known.has(id) && !ours.has(id));
  assert.deepEqual(
    strangers.map(([id, where]) => `${id} in ${[...where].join(', ')}`),
    [],
  );
  assert.deepEqual(
    Object.keys(PENDING).filter((id) => !known.has(id)),
    [],
  );
});

test('the name of a test is a sentence, and its numbers stand in a comment above it', () => {
  const names = files.flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(NAMED)].map(([, id]) => `${file}: ${id}`),
  );
  assert.deepEqual(names, []);
});

test('docs/requirements.md has a sentence for each number, and each number once', () => {
  const page = readFileSync(join(ROOT, '../docs/requirements.md'), 'utf8');
  const ids = [...page.matchAll(/^\| `([^`]+)`/gm)].map(([, id = '']) => id);
  assert.deepEqual(
    ids.filter((id, at) => ids.indexOf(id) !== at || known.has(id)),
    [],
  );
  for (const [id, says] of ours) assert.match(says, /^[A-Z`].{10,}\.$/, id);
  assert.equal(ours.size, ids.length);
});

test('every number of docs/requirements.md stands above a test, or is measured', () => {
  assert.deepEqual(
    [...ours.keys()].filter((id) => !tested.has(id)),
    MEASURED,
  );
});

test('each requirement of the protocol has a sentence and a link', () => {
  const ids = REQUIREMENTS.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  for (const { id, says, link, matrix } of REQUIREMENTS) {
    assert.ok(says !== '' && link.startsWith('https://modelcontextprotocol.io/'), id);
    for (const feature of matrix ?? []) assert.ok(FEATURES.includes(feature), `${id}: ${feature}`);
  }
});

/** Returns the row of `docs/security.md` about a requirement. */
function rowOf(id: string): string {
  const files = [...(tested.get(id) ?? [])].filter((file) => /\.(?:test|contract)\.ts$/.test(file)).toSorted();
  return `| \`${id}\` | ${files.map((file) => `\`test/${file}\``).join(', ')} |`;
}

test('docs/security.md names the tests of each requirement', () => {
  const page = readFileSync(join(ROOT, '../docs/security.md'), 'utf8');
  const rows = [...ours.keys()].filter((id) => id.startsWith('SEC-')).map((id) => rowOf(id));
  const found = page.split('\n').filter((line) => line.startsWith('| `SEC-'));
  assert.deepEqual(found, rows, `the rows have to be:\n${rows.join('\n')}`);
});

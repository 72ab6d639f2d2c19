import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isIncluded, matchesGlob } from '../../../src/catalog/names/glob.ts';

const cases = [
  { glob: '*', text: '', fits: true },
  { glob: 'get_*', text: 'get_issue', fits: true },
  { glob: 'get_*', text: 'forget_it', fits: false },
  { glob: '*_issue*', text: 'list_issues', fits: true },
  { glob: 'a*b*c', text: 'aXbYbZc', fits: true },
  { glob: 'a*b*c', text: 'aXbYbZ', fits: false },
  { glob: '?at', text: 'cat', fits: true },
  { glob: '?at', text: 'at', fits: false },
  { glob: 'x?y', text: 'x😀y', fits: true },
  { glob: 'x??y', text: 'x😀y', fits: false },
  { glob: '*😀?', text: '😀😀é', fits: true },
  { glob: 'a.c', text: 'abc', fits: false },
  { glob: 'Get', text: 'get', fits: false },
  { glob: '', text: 'a', fits: false },
];

for (const { glob, text, fits } of cases) {
  test(`"${glob}" ${fits ? 'fits' : 'does not fit'} "${text}"`, () => assert.equal(matchesGlob(glob, text), fits));
}

test('a hostile glob takes no exponential time', () => {
  assert.equal(matchesGlob('a*'.repeat(200), `${'a'.repeat(2000)}b`), true);
  assert.equal(matchesGlob(`${'*a'.repeat(200)}c`, 'a'.repeat(2000)), false);
});

test('a name that is both included and excluded is excluded', () => {
  const filter = { includeTools: ['get_*'], excludeTools: ['*_secret'] };
  const through = ['get_a', 'get_secret', 'put_a'].filter((name) => isIncluded(filter, name));
  assert.deepEqual(through, ['get_a']);
});

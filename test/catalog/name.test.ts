import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { hasUnseen, publishedName, shown } from '../../src/catalog/name.ts';
import { bare, upstream } from './fixtures.ts';

const cases = [
  { prefix: 'git__', name: 'log', published: 'git__log' },
  { prefix: 'git__', name: 'Log-2', published: 'git__Log-2' },
  { prefix: '9x_', name: 'log', published: '_9x_log' },
  { prefix: 'g.it__', name: 'log', published: 'g_it__log' },
  { prefix: '', name: 'a.b/c d', published: 'a.b/c d' },
  { prefix: '', name: 'x'.repeat(200), published: 'x'.repeat(200) },
];

for (const { prefix, name, published } of cases) {
  test(`"${shown(name)}" behind "${prefix}" is published as "${shown(published)}"`, () => {
    assert.equal(publishedName(upstream('git', { prefix }), name, 48), published);
  });
}

test('published names stay what they are from one release to the next', () => {
  assert.equal(publishedName(upstream('git'), 'repo.log', 48), 'git__repo_log_c09a94');
  assert.equal(publishedName(upstream('git'), 'x'.repeat(60), 48), `git__${'x'.repeat(36)}_57d128`);
});

test('M-002 a name behind a prefix has only characters and a length that every client takes', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', minLength: 1 }), fc.integer({ min: 16, max: 64 }), (name, maxChars) => {
      const published = publishedName(upstream('git'), name, maxChars);
      assert.match(published, /^[A-Za-z_][A-Za-z0-9_-]*$/);
      assert.ok(published.length <= maxChars);
    }),
  );
});

test('SEC-34 names that differ only in what had to be replaced or cut stay apart', () => {
  const names = ['a.b', 'a/b', 'a:b', 'a b', 'ä', 'ö', '😀', `${'long'.repeat(20)}1`, `${'long'.repeat(20)}2`];
  const published = ['git', 'hub'].flatMap((id) => names.map((name) => publishedName(upstream(id), name, 48)));
  assert.equal(new Set(published).size, published.length);
});

test('SEC-34 plain names of two upstreams never meet, whatever they are', () => {
  const plain = fc.stringMatching(/^[A-Za-z0-9_-]{1,60}$/);
  fc.assert(
    fc.property(plain, plain, (a, b) => {
      assert.notEqual(publishedName(upstream('a'), a, 48), publishedName(upstream('a-b'), b, 48));
    }),
  );
});

test('an upstream without a prefix keeps every name', () => {
  fc.assert(fc.property(fc.string(), (name) => assert.equal(publishedName(bare('git'), name, 16), name)));
});

for (const char of [
  '\u0000',
  '\u001b',
  '\u007f',
  '\u00ad',
  '\u200b',
  '\u202e',
  '\u2066',
  '\ufeff',
  '\u{e0041}',
  '\ud800',
  '\u3164',
]) {
  test(`SEC-36 ${shown(char)} in a name is noticed`, () => {
    assert.equal(hasUnseen(`a${char}b`), true);
    assert.equal(shown(char), `\\u{${char.codePointAt(0)?.toString(16)}}`);
  });
}

for (const name of ['get_issue', 'größe', '天気', 'a b', '😀']) {
  test(`"${name}" can be seen as it is`, () => assert.equal(hasUnseen(name), false));
}

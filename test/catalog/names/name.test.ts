import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { publishedName } from '../../../src/catalog/names/name.ts';
import { hasUnseen, shownText } from '../../../src/peer-text.ts';
import { resolveTool } from '../../../src/catalog/catalog.ts';
import { bare, catalogOf, member, tool, upstream, view, listOf } from '../fixtures.ts';
import { quote } from '../../support/test-name.ts';

const cases = [
  { prefix: 'git__', name: 'log', published: 'git__log' },
  { prefix: 'git__', name: 'Log-2', published: 'git__Log-2' },
  { prefix: '9x_', name: 'log', published: '_9x_log' },
  { prefix: 'g.it__', name: 'log', published: 'g_it__log' },
  { prefix: '', name: 'a.b/c d', published: 'a.b/c d' },
  { prefix: '', name: 'x'.repeat(200), published: 'x'.repeat(200) },
];

for (const { prefix, name, published } of cases) {
  test(`${quote(name, 24)} behind "${prefix}" is published as ${quote(published, 24)}`, () => {
    assert.equal(publishedName(upstream('git', { prefix }), name, 48), published);
  });
}

test('published names do not change between releases', () => {
  assert.equal(publishedName(upstream('git'), 'repo.log', 48), 'git__repo_log_c09a94');
  assert.equal(publishedName(upstream('git'), 'x'.repeat(60), 48), `git__${'x'.repeat(36)}_57d128`);
});

for (const { prefix, name, published } of [
  {
    prefix: 'a-very-long-upstream-name-for-testing__',
    name: 'get_issue_details',
    published: /^a-very-long-upstream-na_get_issue_details_[0-9a-f]{6}$/,
  },
  { prefix: 'a-very-long-upstream-name-for-testing__', name: 'x'.repeat(34), published: /^a-very_x{34}_[0-9a-f]{6}$/ },
  { prefix: 'a-very-long-upstream-name-for-testing__', name: 'x'.repeat(99), published: /^a-very_x{34}_[0-9a-f]{6}$/ },
  { prefix: 'github__', name: 'list.'.repeat(7), published: /^github__(?:list_){6}lis_[0-9a-f]{6}$/ },
]) {
  // N-11
  test(`${quote(name, 20)} behind ${quote(prefix, 20)} stays as far as it fits`, () => {
    const short = publishedName(upstream('a', { prefix }), name, 48);
    assert.match(short, published);
    assert.ok(short.length <= 48);
  });
}

// N-11
test('a shortened prefix does not equal the prefix of another upstream', () => {
  const long = upstream('b', { prefix: 'github-enterprise-of-the-whole-company__' });
  const name = 'search_repositories_by_topic_and_lang';
  const shown = view([upstream('a', { prefix: 'github__' }), long]);
  const catalog = catalogOf(shown, { b: { tools: [tool(name)] } });
  const [published = ''] = catalog.tools.keys();
  assert.match(published, /^github_search_repositories_by_topic_and_l[a-z]*_[0-9a-f]{6}$/);
  assert.deepEqual(resolveTool(catalog, published), { upstream: 'b', name });
});

// M-002
test('a prefixed name has characters and a length that every client accepts', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', minLength: 1 }), fc.integer({ min: 16, max: 64 }), (name, maxChars) => {
      const published = publishedName(upstream('git'), name, maxChars);
      assert.match(published, /^[A-Za-z_][A-Za-z0-9_-]*$/);
      assert.ok(published.length <= maxChars);
    }),
  );
});

// SEC-34
test('names that differ only in replaced or cut characters stay distinct', () => {
  const names = ['a.b', 'a/b', 'a:b', 'a b', 'ä', 'ö', '😀', `${'long'.repeat(20)}1`, `${'long'.repeat(20)}2`];
  const published = ['git', 'hub'].flatMap((id) => names.map((name) => publishedName(upstream(id), name, 48)));
  assert.equal(new Set(published).size, published.length);
});

// SEC-34
test('plain names of two upstreams are never equal', () => {
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
  // SEC-36
  test(`${shownText(char)} in a name is noticed`, () => assert.equal(hasUnseen(`a${char}b`), true));
}

for (const name of ['get_issue', 'größe', '天気', 'a b', '😀']) {
  test(`"${name}" can be seen as it is`, () => assert.equal(hasUnseen(name), false));
}

/** Two upstreams whose prefixes are equal once they are cut, and tools of them whose hashes are equal: found by a search. */
const EVIL = { shown: upstream('evil', { prefix: 'a-very-evil__' }), name: `${'x'.repeat(60)}9550` };
const GOOD = { shown: upstream('good', { prefix: 'a-very-good__' }), name: `${'x'.repeat(60)}5014` };
const HASHED = publishedName(GOOD.shown, GOOD.name, 48);

// SEC-34
test('a name with a hash that two upstreams have is offered by neither', () => {
  assert.equal(publishedName(EVIL.shown, EVIL.name, 48), HASHED);
  const catalog = catalogOf(view([EVIL.shown, GOOD.shown, bare('other')]), {
    evil: { tools: [tool(EVIL.name)] },
    good: { tools: [tool(GOOD.name), tool('b')] },
    other: { tools: [tool(HASHED)] },
  });
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['a-very-good__b']);
  assert.equal(resolveTool(catalog, HASHED), undefined);
  assert.deepEqual(
    catalog.quarantined.map(({ upstream: id }) => id),
    ['evil', 'good', 'other'],
  );
  for (const { why } of catalog.quarantined) assert.match(why, /the shortened name of an item of another upstream/);
});

// SEC-34
test('an upstream without a prefix does not take a name with the hash of another', () => {
  const catalog = catalogOf(view([bare('other'), GOOD.shown]), {
    other: { tools: [tool(HASHED), tool('mine')] },
    good: { tools: [tool(GOOD.name)] },
  });
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['mine', HASHED]);
  assert.deepEqual(resolveTool(catalog, HASHED), { upstream: 'good', name: GOOD.name });
  assert.deepEqual(
    catalog.quarantined.map(({ upstream: id }) => id),
    ['other'],
  );
});

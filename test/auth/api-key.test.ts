import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { ApiKeys } from '../../src/auth/api-key.ts';

const sha256 = (key: string): string => hash('sha256', key);

test('a configured key has the principal of its name, any other key has none', () => {
  const keys = new ApiKeys([
    { name: 'ci', sha256: sha256('one') },
    { name: 'desk', sha256: sha256('two').toUpperCase() },
  ]);
  assert.deepEqual(keys.find(sha256('one')), { key: 'key:ci', label: 'ci', scopes: [] });
  assert.equal(keys.find(sha256('two'))?.key, 'key:desk');
  assert.equal(keys.find(sha256('three')), undefined);
  assert.equal(new ApiKeys([]).find(sha256('one')), undefined);
});

test('two keys of one name are one principal, so a key can be replaced', () => {
  const keys = new ApiKeys([
    { name: 'ci', sha256: sha256('old') },
    { name: 'ci', sha256: sha256('new') },
  ]);
  assert.deepEqual(keys.find(sha256('old')), keys.find(sha256('new')));
});

for (const text of ['', 'abc', 'z'.repeat(64), sha256('x').slice(1)]) {
  test(`SEC-14 the digest "${text.slice(0, 8)}" of ${text.length} characters is refused at creation`, () => {
    assert.throws(() => new ApiKeys([{ name: 'ci', sha256: text }]), /API key "ci": sha256 is not 64 hex digits/);
  });
}

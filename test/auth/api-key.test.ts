import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { ApiKeys } from '../../src/auth/api-key.ts';

const sha256 = (key: string): string => hash('sha256', key);
const T0 = Date.parse('2026-11-23T00:00:00Z');

test('a configured key has the principal of its name, any other key has none', () => {
  const keys = new ApiKeys([
    { name: 'ci', sha256: sha256('one'), groups: ['build'] },
    { name: 'desk', sha256: sha256('two').toUpperCase() },
  ]);
  const keyId = sha256('one').slice(0, 12);
  const expected = { key: 'key:ci', label: 'ci', scopes: [], keyName: 'ci', keyId, groups: ['build'] };
  assert.deepEqual(keys.find(sha256('one')), expected);
  assert.equal(keys.find(sha256('two'))?.key, 'key:desk');
  assert.equal(keys.find(sha256('three')), undefined);
  assert.equal(new ApiKeys([]).find(sha256('one')), undefined);
  const stored = { name: 'other', sha256: sha256('one') };
  assert.equal(new ApiKeys([{ ...stored, name: 'ci' }], [stored]).find(sha256('one'))?.key, 'key:ci');
});

test('two keys of one name are one principal, so a key can be replaced', () => {
  const keys = new ApiKeys(
    [{ name: 'ci', sha256: sha256('old') }],
    [{ name: 'ci', sha256: sha256('new'), groups: ['build'] }],
  );
  assert.equal(keys.find(sha256('old'))?.key, keys.find(sha256('new'))?.key);
});

test('a stored key has its groups, and is refused from its expiry on', () => {
  const expiresAt = new Date(T0).toISOString();
  const keys = new ApiKeys([], [{ name: 'ci', sha256: sha256('one'), groups: ['a', 'b'], expiresAt }]);
  const found = keys.find(sha256('one'), T0 - 1);
  assert.deepEqual([found?.groups, found?.expiresAtMs], [['a', 'b'], T0]);
  assert.equal(keys.find(sha256('one'), T0), undefined);
});

test('unchanged keys keep their principals, changed and removed ones do not', () => {
  const [same, changed, gone] = ['same', 'changed', 'gone'].map((name) => ({ name, sha256: sha256(name) }));
  assert.ok(same !== undefined && changed !== undefined && gone !== undefined);
  const before = new ApiKeys([], [same, changed, gone]);
  const after = new ApiKeys([], [{ ...same }, { ...changed, groups: ['new'] }], before);
  const [ofSame, ofChanged, ofGone] = [same, changed, gone].map((key) => before.find(key.sha256));
  assert.ok(ofSame !== undefined && ofChanged !== undefined && ofGone !== undefined);
  assert.deepEqual(
    [ofSame, ofChanged, ofGone].map((principal) => after.isCurrent(principal)),
    [true, false, false],
  );
  assert.equal(after.find(changed.sha256)?.groups?.[0], 'new');
  assert.deepEqual(
    [ofSame, ofChanged, ofGone].map((principal) => after.isOver(principal, T0)),
    [false, false, true],
  );
});

test('a removed key is remembered over later changes, until it is there again', () => {
  const gone = { name: 'gone', sha256: sha256('gone') };
  const first = new ApiKeys([], [gone]);
  const ofGone = first.find(gone.sha256);
  assert.ok(ofGone !== undefined);
  const second = new ApiKeys([], [], first);
  const third = new ApiKeys([{ name: 'other', sha256: sha256('other') }], [], second);
  assert.deepEqual(
    [first, second, third].map((keys) => keys.isOver(ofGone, T0)),
    [false, true, true],
  );
  assert.equal(new ApiKeys([], [gone], third).isOver(ofGone, T0), false);
  const unknown = { ...ofGone, keyId: '0123456789ab' };
  assert.equal(third.isOver(unknown, T0), false, 'a key that was never known may be known to another replica');
});

test('a principal of a key has the groups that the key has now', () => {
  const key = { name: 'ann', sha256: sha256('ann'), groups: ['sales', 'eng'] };
  const before = new ApiKeys([], [key]);
  const ann = before.find(key.sha256);
  assert.ok(ann !== undefined);
  const narrowed = new ApiKeys([], [{ ...key, groups: ['sales'] }], before);
  assert.deepEqual(narrowed.currentOf(ann).groups, ['sales']);
  const owned = new ApiKeys([], [{ ...key, owner: 'Ada' }], before);
  assert.equal(owned.currentOf(ann), ann, 'a change of something else changes no rights');
  const ofReplica = { ...ann, groups: [...key.groups] };
  assert.equal(before.currentOf(ofReplica), ofReplica, 'another replica has authenticated it');
  assert.equal(new ApiKeys([], [], before).currentOf(ann), ann, 'a removed key has no other rights');
});

test('what a key has opened is over when the key gets another name', () => {
  const key = { name: 'ann', sha256: sha256('ann') };
  const before = new ApiKeys([], [key]);
  const ann = before.find(key.sha256);
  assert.ok(ann !== undefined);
  const renamed = new ApiKeys([], [{ ...key, name: 'bob', groups: ['eng'] }], before);
  assert.ok(renamed.isOver(ann, T0));
  assert.equal(renamed.currentOf(ann), ann, 'it gets no rights of the other name');
});

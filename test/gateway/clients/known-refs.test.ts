import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KnownRefs } from '../../../src/gateway/clients/known-refs.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { SessionRef } from '../../../src/store/session-store.ts';

const ANN = { key: 'ann', label: 'ann', scopes: [] };
const BOB = { key: 'bob', label: 'bob', scopes: [] };
const ID = 'sealed.text.tag';

function refUntil(expiresMs: number): SessionRef {
  return { principal: ANN.key, serial: 1, expiresMs };
}

test('the reference of a known id is found for its principal and view only', () => {
  const refs = new KnownRefs(() => undefined);
  const ref = refUntil(Date.now() + 60_000);
  refs.add(ID, ref, 'view');
  assert.deepEqual(refs.find(ID, ANN, 'view'), ref);
  assert.equal(refs.find(ID, BOB, 'view'), undefined);
  assert.equal(refs.find(ID, ANN, 'other'), undefined);
});

test('another id with the same tag is not known', () => {
  const refs = new KnownRefs(() => undefined);
  refs.add(ID, refUntil(Date.now() + 60_000), 'view');
  assert.equal(refs.find('forged.text.tag', ANN, 'view'), undefined);
});

test('an expired reference is not found', () => {
  const refs = new KnownRefs(() => undefined);
  refs.add(ID, refUntil(Date.now() - 1), 'view');
  assert.equal(refs.find(ID, ANN, 'view'), undefined);
});

test('limit knownSessionIds: all references are removed', () => {
  const reached: string[] = [];
  const refs = new KnownRefs((limit) => reached.push(limit));
  const ref = refUntil(Date.now() + 60_000);
  for (let n = 0; n < LIMITS.knownSessionIds; n++) refs.add(`sealed.text.${n}`, ref, 'view');
  assert.deepEqual(refs.find('sealed.text.0', ANN, 'view'), ref);
  refs.add(ID, ref, 'view');
  assert.equal(refs.find('sealed.text.0', ANN, 'view'), undefined);
  assert.deepEqual(refs.find(ID, ANN, 'view'), ref);
  assert.deepEqual(reached, ['knownSessionIds']);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionRecords } from '../../../src/store/sessions/session-records.ts';

const expires = 1_000;
/** Sessions of two principals. */
const [ANN, BOB] = [
  { id: 'ann.1', expires },
  { id: 'bob.1', expires },
];

// N-23
test('a record counts its bytes for its owner, and removing it gives them back', () => {
  const records = new SessionRecords();
  const expected = records.bytesFor(ANN.id, 'file:///a');
  assert.equal(records.apply({ ...ANN, subscribe: 'file:///a' }), true);
  assert.deepEqual([records.all.total, records.all.of('ann'), records.all.of('bob')], [expected, expected, 0]);
  const more = records.bytesFor(ANN.id, 'info');
  assert.equal(records.apply({ ...ANN, level: 'info' }), true);
  assert.equal(records.apply({ ...BOB, use: 'files' }), true);
  assert.equal(records.all.of('ann'), expected + more);
  assert.equal(records.all.total, records.all.of('ann') + records.all.of('bob'));
  records.remove(ANN.id);
  records.remove(ANN.id);
  assert.equal(records.all.of('ann'), 0);
  records.removeExpired(1_000);
  assert.equal(records.all.total, 0);
});

// N-23
test('a change that changes nothing is reported, and costs nothing', () => {
  const records = new SessionRecords();
  records.apply({ ...ANN, level: 'info' });
  records.apply({ ...ANN, subscribe: 'file:///a' });
  records.apply({ ...ANN, use: 'files' });
  const bytes = records.all.total;
  assert.equal(records.apply({ ...ANN, level: 'info' }), false);
  assert.equal(records.apply({ ...ANN, subscribe: 'file:///a' }), false);
  assert.equal(records.apply({ ...ANN, use: 'files' }), false);
  assert.equal(records.apply({ ...ANN, unsubscribe: 'file:///b' }), false);
  assert.equal(records.all.total, bytes);
});

test('a record has its level, URIs and upstreams until it expires', () => {
  const records = new SessionRecords();
  records.apply({ ...ANN, level: 'debug' });
  records.apply({ ...ANN, level: 'error' });
  for (const uri of ['file:///a', 'file:///b']) records.apply({ ...ANN, subscribe: uri });
  records.apply({ ...ANN, unsubscribe: 'file:///a' });
  records.apply({ ...ANN, use: 'files' });
  assert.deepEqual(records.get(ANN.id), { logLevel: 'error', subscriptions: ['file:///b'], upstreams: ['files'] });
  assert.deepEqual([records.hasUri(ANN.id, 'file:///b'), records.uriCount(ANN.id)], [true, 1]);
  assert.deepEqual([...records], [{ id: ANN.id, expiresMs: 1_000 }]);
  records.removeExpired(999);
  assert.ok(records.get(ANN.id));
  records.removeExpired(1_000);
  assert.equal(records.get(ANN.id), undefined);
});

test('a record whose last subscription is removed is gone', () => {
  const records = new SessionRecords();
  records.apply({ ...ANN, subscribe: 'file:///a' });
  records.apply({ ...ANN, unsubscribe: 'file:///a' });
  assert.equal(records.get(ANN.id), undefined);
  assert.equal(records.all.total, 0);
});

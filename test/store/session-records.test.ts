import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SessionRecords } from '../../src/store/session-records.ts';

// N-23
test('a record counts its bytes for its owner, and removing it gives them back', () => {
  const records = new SessionRecords();
  const expected = records.bytesFor('s1', 'file:///a');
  assert.equal(records.addUri('s1', 'alice', 1_000, 'file:///a'), true);
  assert.deepEqual([records.bytes, records.bytesOf('alice'), records.bytesOf('bob')], [expected, expected, 0]);
  const more = records.bytesFor('s1', 'info');
  assert.equal(records.setLevel('s1', 'alice', 1_000, 'info'), true);
  assert.equal(records.addUpstream('s2', 'bob', 1_000, 'files'), true);
  assert.equal(records.bytesOf('alice'), expected + more);
  assert.equal(records.bytes, records.bytesOf('alice') + records.bytesOf('bob'));
  records.remove('s1');
  records.remove('s1');
  assert.equal(records.bytesOf('alice'), 0);
  records.removeExpired(1_000);
  assert.equal(records.bytes, 0);
});

// N-23
test('a change that changes nothing is reported, and costs nothing', () => {
  const records = new SessionRecords();
  records.setLevel('s', 'alice', 1_000, 'info');
  records.addUri('s', 'alice', 1_000, 'file:///a');
  records.addUpstream('s', 'alice', 1_000, 'files');
  const { bytes } = records;
  assert.equal(records.setLevel('s', 'alice', 1_000, 'info'), false);
  assert.equal(records.addUri('s', 'alice', 1_000, 'file:///a'), false);
  assert.equal(records.addUpstream('s', 'alice', 1_000, 'files'), false);
  assert.equal(records.removeUri('s', 'file:///b'), false);
  assert.equal(records.bytes, bytes);
});

test('a record has its level, URIs and upstreams until it expires', () => {
  const records = new SessionRecords();
  records.setLevel('s', 'alice', 1_000, 'debug');
  records.setLevel('s', 'alice', 1_000, 'error');
  for (const uri of ['file:///a', 'file:///b']) records.addUri('s', 'alice', 1_000, uri);
  records.removeUri('s', 'file:///a');
  records.addUpstream('s', 'alice', 1_000, 'files');
  assert.deepEqual(records.get('s'), { logLevel: 'error', subscriptions: ['file:///b'], upstreams: ['files'] });
  assert.deepEqual([records.hasUri('s', 'file:///b'), records.uriCount('s')], [true, 1]);
  assert.deepEqual([...records], [{ id: 's', expiresMs: 1_000 }]);
  records.removeExpired(999);
  assert.ok(records.get('s'));
  records.removeExpired(1_000);
  assert.equal(records.get('s'), undefined);
});

test('a record whose last subscription is removed is gone', () => {
  const records = new SessionRecords();
  records.addUri('s', 'alice', 1_000, 'file:///a');
  records.removeUri('s', 'file:///a');
  assert.equal(records.get('s'), undefined);
  assert.equal(records.bytes, 0);
});

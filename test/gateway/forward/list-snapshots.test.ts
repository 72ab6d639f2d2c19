import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ListSnapshots } from '../../../src/gateway/forward/list-snapshots.ts';
import { LIMITS } from '../../../src/limits.ts';

function opened() {
  const reached: string[] = [];
  return { snapshots: new ListSnapshots((limit) => reached.push(limit)), reached };
}

test('limit listSnapshots: the least recently used list is removed', () => {
  const { snapshots, reached } = opened();
  for (let n = 0; n < LIMITS.listSnapshots; n++) snapshots.keep(String(n), ['item']);
  snapshots.keep('0', ['item']);
  assert.deepEqual(reached, []);
  snapshots.keep('new', ['item']);
  assert.deepEqual([snapshots.get('0'), snapshots.get('1'), snapshots.get('new')], [['item'], undefined, ['item']]);
  assert.deepEqual(reached, ['listSnapshots']);
});

test('limit listSnapshotsBytes: lists are removed until there is room', () => {
  const { snapshots, reached } = opened();
  // The texts are equal, so that the test takes little memory.
  const text = 'x'.repeat(LIMITS.listSnapshotsBytes / 16);
  const third = [text, text, text];
  for (const key of ['a', 'b', 'c']) {
    snapshots.keep(key, third);
    snapshots.keep(key, third);
  }
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => snapshots.get(key) !== undefined),
    [false, true, true],
  );
  assert.deepEqual(reached, ['listSnapshotsBytes']);
  snapshots.keep('huge', [...third, ...third, ...third]);
  assert.equal(snapshots.get('huge'), undefined);
  snapshots.keep('after', third);
  assert.deepEqual(snapshots.get('after'), third);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteBounds } from '../../../src/upstream/quota/byte-bounds.ts';
import { LIMITS } from '../../../src/limits.ts';

const QUESTIONS = { each: 'openQuestionBytesPerUpstream', total: 'openQuestionBytes' } as const;
const LISTENS = { each: 'listenUriBytesPerPrincipal', total: 'listenUriBytes' } as const;

for (const [ofEach, ofAll, names] of [
  // N-28
  ['limit openQuestionBytesPerUpstream', 'limit openQuestionBytes', QUESTIONS],
  // N-23
  ['limit listenUriBytesPerPrincipal', 'limit listenUriBytes', LISTENS],
] as const) {
  const { each, total } = names;

  test(`${ofEach}: beyond it, something must end`, () => {
    const reached: string[] = [];
    const bounds = new ByteBounds(names, (limit) => reached.push(limit));
    const half = LIMITS[each] / 2;
    const release = bounds.take('a', half);
    assert.ok(bounds.take('a', half) !== undefined && release !== undefined);
    assert.equal(bounds.take('a', 1), undefined);
    assert.deepEqual(reached, [each]);
    assert.ok(bounds.take('b', 1) !== undefined);
    release();
    release();
    assert.ok(bounds.take('a', half) !== undefined);
    assert.equal(bounds.take('a', 1), undefined, 'a second release gives nothing back');
  });

  test(`${ofAll}: all keys together have a bound`, () => {
    const reached: string[] = [];
    const bounds = new ByteBounds(names, (limit) => reached.push(limit));
    const keys = Array.from({ length: LIMITS[total] / LIMITS[each] }, (_, n) => `key ${n}`);
    const releases = keys.map((key) => bounds.take(key, LIMITS[each]));
    assert.ok(releases.every((release) => release !== undefined));
    assert.equal(bounds.take('next', 1), undefined);
    assert.deepEqual(reached, [total]);
    releases[0]?.();
    assert.ok(bounds.take('next', 1) !== undefined);
  });
}

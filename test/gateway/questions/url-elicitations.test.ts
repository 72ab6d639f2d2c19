import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { UrlElicitations } from '../../../src/gateway/questions/url-elicitations.ts';
import { usedBytes } from '../../support/used-bytes.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 600_000;

test('a wait ends when all of its elicitations are complete', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  let isOver = false;
  const waiting = elicitations.wait('up', ['a', 'b'], LONG_MS).then(() => (isOver = true));
  elicitations.complete('up', 'a');
  elicitations.complete('other', 'b');
  await nextTurn();
  assert.equal(isOver, false);
  elicitations.complete('up', 'b');
  await waiting;
});

test('an elicitation may be complete before the wait for it', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  elicitations.complete('up', 'a');
  await elicitations.wait('up', ['a'], LONG_MS);
});

test('a wait ends after its time', OPTIONS, async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const waiting = new UrlElicitations(() => undefined).wait('up', ['a'], LONG_MS);
  t.mock.timers.tick(LONG_MS);
  await waiting;
});

/** Returns whether a wait for this elicitation ends at once. */
async function isKept(elicitations: UrlElicitations, upstream: string, id: string): Promise<boolean> {
  let isOver = false;
  void elicitations.wait(upstream, [id], 1_000).then(() => (isOver = true));
  await nextTurn();
  return isOver;
}

test('limit completedElicitationsPerUpstream: the oldest of this upstream is removed', OPTIONS, async () => {
  const reached: string[] = [];
  const elicitations = new UrlElicitations((limit) => reached.push(limit));
  elicitations.complete('other', '0');
  for (let n = 0; n <= LIMITS.completedElicitationsPerUpstream; n++) elicitations.complete('up', String(n));
  assert.equal(await isKept(elicitations, 'up', '0'), false);
  assert.equal(await isKept(elicitations, 'up', '1'), true);
  assert.equal(await isKept(elicitations, 'other', '0'), true);
  assert.deepEqual(reached, ['completedElicitationsPerUpstream']);
});

test('completed elicitations with long ids take little memory', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  const idOf = (n: number) => String(n).padStart(100_000, 'x');
  const before = usedBytes();
  for (let n = 0; n < 500; n++) elicitations.complete('up', idOf(n));
  assert.ok(usedBytes() - before < 5_000_000);
  assert.equal(await isKept(elicitations, 'up', idOf(0)), true);
});

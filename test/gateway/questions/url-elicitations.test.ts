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
  const waiting = elicitations.wait('up', 'ann', ['a', 'b'], LONG_MS).then(() => (isOver = true));
  elicitations.complete('up', 'ann', 'a');
  elicitations.complete('other', 'ann', 'b');
  await nextTurn();
  assert.equal(isOver, false);
  elicitations.complete('up', 'ann', 'b');
  await waiting;
});

test('an elicitation may be complete before the wait for it', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  elicitations.complete('up', 'ann', 'a');
  await elicitations.wait('up', 'ann', ['a'], LONG_MS);
});

// SEC-12
test('a report for one principal is for no other, and one for everybody is for all', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  elicitations.complete('up', 'ann', 'a');
  elicitations.complete('up', '', 'b');
  assert.equal(await isKept(elicitations, 'up', 'a', 'bob'), false);
  assert.equal(await isKept(elicitations, 'up', 'b', 'bob'), true);
  let isOver = false;
  const waiting = elicitations.wait('up', 'bob', ['c', 'd'], LONG_MS).then(() => (isOver = true));
  elicitations.complete('up', 'ann', 'c');
  elicitations.complete('up', '', 'd');
  await nextTurn();
  assert.equal(isOver, false);
  elicitations.complete('up', 'bob', 'c');
  await waiting;
});

test('a wait ends after its time', OPTIONS, async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const waiting = new UrlElicitations(() => undefined).wait('up', 'ann', ['a'], LONG_MS);
  t.mock.timers.tick(LONG_MS);
  await waiting;
});

/** Returns whether a wait for this elicitation ends at once. */
async function isKept(
  elicitations: UrlElicitations,
  upstream: string,
  id: string,
  principal = 'ann',
): Promise<boolean> {
  let isOver = false;
  void elicitations.wait(upstream, principal, [id], 1_000).then(() => (isOver = true));
  await nextTurn();
  return isOver;
}

test('limit completedElicitationsPerUpstream: the oldest of this upstream is removed', OPTIONS, async () => {
  const reached: string[] = [];
  const elicitations = new UrlElicitations((limit) => reached.push(limit));
  elicitations.complete('other', 'ann', '0');
  for (let n = 0; n <= LIMITS.completedElicitationsPerUpstream; n++) elicitations.complete('up', 'ann', String(n));
  assert.equal(await isKept(elicitations, 'up', '0'), false);
  assert.equal(await isKept(elicitations, 'up', '1'), true);
  assert.equal(await isKept(elicitations, 'other', '0'), true);
  assert.deepEqual(reached, ['completedElicitationsPerUpstream']);
});

test('completed elicitations with long ids take little memory', OPTIONS, async () => {
  const elicitations = new UrlElicitations(() => undefined);
  const idOf = (n: number) => String(n).padStart(100_000, 'x');
  const before = usedBytes();
  for (let n = 0; n < 500; n++) elicitations.complete('up', 'ann', idOf(n));
  assert.ok(usedBytes() - before < 5_000_000);
  assert.equal(await isKept(elicitations, 'up', idOf(0)), true);
});

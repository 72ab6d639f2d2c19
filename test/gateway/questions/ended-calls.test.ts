import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ReadAnswer } from '../../../src/gateway/exchange/answer-text.ts';
import { EndedCalls } from '../../../src/gateway/questions/ended-calls.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';

const end = (answer: Answer, isUpstreams = false): ReadAnswer => ({ answer, isUpstreams });
const BIG = end({ kind: 'result', result: JSON.stringify('x'.repeat(2 ** 20)) });
const FAILED = end({ kind: 'error', error: { code: -32603, message: 'Failed' } }, true);

/** Adds large answers of these principals, one for each. Returns the ids of those that are kept, and the limits that were reached. */
function keptOf(principals: readonly string[]) {
  const reached: string[] = [];
  const calls = new EndedCalls((limit) => reached.push(limit));
  for (const [n, principal] of principals.entries()) calls.add(String(n), principal, BIG, n);
  const kept = principals.map((_, n) => String(n)).filter((id) => calls.find(id, principals.length) !== undefined);
  return { kept, reached };
}

test('an ended call has its answer for a minute', () => {
  const calls = new EndedCalls(() => undefined);
  calls.add('a', 'ann', BIG, 0);
  calls.add('b', 'bob', FAILED, 1_000);
  assert.deepEqual([calls.find('a', 59_999), calls.find('b', 59_999)], [BIG, FAILED]);
  assert.equal(calls.find('a', 60_000), undefined);
  calls.removeExpired(60_000);
  assert.equal(calls.size, 1);
  calls.removeExpired(61_000);
  assert.equal(calls.size, 0);
});

test('limit endedCallBytesPerPrincipal: the oldest answer of the principal goes', () => {
  const { kept, reached } = keptOf(['bob', ...Array<string>(8).fill('ann')]);
  assert.deepEqual(kept, ['0', '2', '3', '4', '5', '6', '7', '8']);
  assert.deepEqual(reached, ['endedCallBytesPerPrincipal']);
});

test('limit endedCallBytes: the oldest answer of all goes', () => {
  const { kept, reached } = keptOf(Array.from({ length: 32 }, (_, n) => `principal ${n}`));
  assert.deepEqual([kept.length, kept[0]], [31, '1']);
  assert.deepEqual(reached, ['endedCallBytes']);
});

test('an answer that is larger than the bound is not kept', () => {
  const calls = new EndedCalls(() => undefined);
  const result = 'x'.repeat(LIMITS.endedCallBytesPerPrincipal / 2);
  calls.add('a', 'ann', end({ kind: 'result', result }), 0);
  assert.deepEqual([calls.size, calls.find('a', 0)], [0, undefined]);
});

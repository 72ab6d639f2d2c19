import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { LateWrites } from '../../../src/gateway/calls/late-writes.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { KeyedCall, KeyedCallStore } from '../../../src/store/keyed-call-store.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { waitUntil } from '../../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const KEEP_MS = 600_000;
const call = (name: string): KeyedCall => ({ principal: 'ann', name });

/** A store in memory that can be out of reach. */
function opened() {
  const memory = new MemoryKeyedCallStore(() => undefined);
  const state = { isDown: false };
  const reached = async <T>(work: () => Promise<T>): Promise<T> => {
    if (state.isDown) throw new GatewayError('store-unavailable');
    return await work();
  };
  const store: KeyedCallStore = {
    claim: (keyed, claim, keepMs) => reached(() => memory.claim(keyed, claim, keepMs)),
    end: (keyed, claim, outcome, keepMs) => reached(() => memory.end(keyed, claim, outcome, keepMs)),
    release: (keyed, claim) => reached(() => memory.release(keyed, claim)),
  };
  const limits: string[] = [];
  const late = new LateWrites(store, (limit) => limits.push(limit));
  const found = async (name: string) => await memory.claim(call(name), 'q/1', KEEP_MS);
  return { store, state, limits, late, found, [Symbol.dispose]: () => late.close() };
}

test('writes that the store could not accept reach it later', OPTIONS, async () => {
  using at = opened();
  for (const name of ['ended', 'released']) await at.store.claim(call(name), `p/${name}`, KEEP_MS);
  at.state.isDown = true;
  await at.late.end(call('ended'), 'p/ended', 'outcome', KEEP_MS);
  await at.late.release(call('released'), 'p/released');
  assert.equal(await at.late.repeat('p/ended'), false);
  assert.equal((await at.found('ended')).kind, 'running');
  at.state.isDown = false;
  await waitUntil(async () => (await at.found('ended')).kind === 'ended');
  assert.deepEqual(await at.found('ended'), { kind: 'ended', outcome: 'outcome' });
  await waitUntil(async () => (await at.found('released')).kind === 'claimed');
});

test('a late write can be repeated before its time', OPTIONS, async () => {
  using at = opened();
  await at.store.claim(call('a'), 'p/a', KEEP_MS);
  at.state.isDown = true;
  await at.late.release(call('a'), 'p/a');
  at.state.isDown = false;
  assert.equal(await at.late.repeat('p/a'), true);
  assert.equal(await at.late.repeat('p/a'), false, 'it is written');
});

test('limit unwrittenKeyedCalls: a further late write is not kept', OPTIONS, async () => {
  using at = opened();
  at.state.isDown = true;
  for (let n = 0; n < LIMITS.unwrittenKeyedCalls; n++) await at.late.release(call(`${n}`), `p/${n}`);
  assert.deepEqual(at.limits, []);
  await at.late.release(call('x'), 'p/x');
  assert.deepEqual(at.limits, ['unwrittenKeyedCalls']);
  at.state.isDown = false;
  assert.equal(await at.late.repeat('p/x'), false);
});

test('limit unwrittenOutcomesBytes: the fact that the call has ended is kept alone', OPTIONS, async () => {
  using at = opened();
  const outcome = 'x'.repeat(LIMITS.keyedOutcomeBytes);
  const names = Array.from({ length: LIMITS.unwrittenOutcomesBytes / (2 * outcome.length) + 1 }, (_, n) => `${n}`);
  for (const name of names) await at.store.claim(call(name), `p/${name}`, KEEP_MS);
  at.state.isDown = true;
  for (const name of names) await at.late.end(call(name), `p/${name}`, outcome, KEEP_MS);
  assert.deepEqual(at.limits, ['unwrittenOutcomesBytes']);
  at.state.isDown = false;
  for (const name of names) assert.equal(await at.late.repeat(`p/${name}`), true);
  const kept = await Promise.all(names.map(at.found));
  assert.deepEqual(
    kept.map((claim) => claim.kind === 'ended' && claim.outcome !== undefined),
    names.map((_, n) => n < names.length - 1),
  );
});

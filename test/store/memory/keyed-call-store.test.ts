import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { keyedCallStoreContract } from '../keyed-call-store.contract.ts';

keyedCallStoreContract('memory', async (onLimit, bounds) => new MemoryKeyedCallStore(onLimit, bounds));

test('a principal at its bound is not slowed down by the calls of others', { timeout: 120_000 }, async () => {
  let removed = 0;
  const bounds = { ...LIMITS, keyedOutcomesBytesPerPrincipal: 1_000 };
  const store = new MemoryKeyedCallStore(() => removed++, bounds);
  const make = async (principal: string, name: string, chars: number): Promise<void> => {
    assert.deepEqual(await store.claim({ principal, name }, 'claim', 600_000), { kind: 'claimed' });
    await store.end({ principal, name }, 'claim', 'x'.repeat(chars), 600_000);
  };
  for (let n = 0; n < 50_000; n++) await make(`other ${n % 10_000}`, String(n), 10);
  const beganMs = performance.now();
  for (let n = 0; n < 1_000; n++) await make('one', String(n), 400);
  assert.equal(removed, 999);
  // Looking through those of the others each time took 20 s.
  assert.ok(performance.now() - beganMs < 5_000); // subject
});

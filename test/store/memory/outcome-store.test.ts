import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { MemoryOutcomeStore } from '../../../src/store/memory/outcome-store.ts';
import { outcomeStoreContract } from '../outcome-store.contract.ts';

outcomeStoreContract('memory', async (onLimit) => new MemoryOutcomeStore(onLimit));

test('many stored ends do not slow down the next ones', { timeout: 120_000 }, async () => {
  let removed = 0;
  const store = new MemoryOutcomeStore(() => removed++);
  const small = 'x'.repeat(2_000);
  const beganMs = performance.now();
  for (let bytes = 0; bytes < LIMITS.outcomesBytes; bytes += 2 * small.length) {
    await store.settle(String(bytes), small, 600_000);
  }
  assert.ok(await store.settle('large', 'x'.repeat(LIMITS.outcomeBytes), 600_000));
  assert.ok(removed > 400, `${removed} small ones make room for a large one`);
  // Looking through all of them each time took 40 s.
  assert.ok(performance.now() - beganMs < 10_000); // subject
});

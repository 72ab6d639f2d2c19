import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bodyBudgetLimits } from '../../../src/downstream/memory/edge-memory.ts';
import { configWith } from '../edge.ts';

const MIB = 1_048_576;
const HEAP_BYTES = 256 * MIB;

// N-26
test('the default budget of bodies has room for four of the largest ones', () => {
  const limitsFor = (bodyBytes: number) => bodyBudgetLimits(configWith({ limits: { bodyBytes } }).limits, HEAP_BYTES);
  assert.deepEqual(limitsFor(4 * MIB), { totalBytes: 32 * MIB, principalBytes: 16 * MIB });
  assert.deepEqual(limitsFor(200 * MIB), { totalBytes: 800 * MIB, principalBytes: 400 * MIB });
});

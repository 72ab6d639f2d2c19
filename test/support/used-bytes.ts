import assert from 'node:assert/strict';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const gc: unknown = runInNewContext('gc');

/** Collects garbage now: all of it, or of the young objects alone. */
export function collect(type: 'major' | 'minor' = 'major'): void {
  assert.ok(typeof gc === 'function');
  gc({ type });
}

/** What this process holds on to, garbage left out. */
export function usedBytes(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

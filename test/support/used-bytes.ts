import assert from 'node:assert/strict';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const gc: unknown = runInNewContext('gc');

/** Collects garbage now: all of it, or only young objects. */
export function collect(type: 'major' | 'minor' = 'major'): void {
  assert.ok(typeof gc === 'function');
  gc({ type });
}

/** Returns the bytes that this process uses after a full collection. */
export function usedBytes(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JsonTextError } from '../../src/json/json.ts';
import { canonicalText } from '../../src/lock/canonical.ts';

/** Returns a text in so many objects. */
function nested(text: string, depth: number): string {
  return `${'{"b":0,"a":'.repeat(depth)}${text}${'}'.repeat(depth)}`;
}

// SEC-24
test('a deep definition is not read again at each level', { timeout: 120_000 }, () => {
  const text = `"${String.raw`\"`.repeat(1_000_000)}"`;
  const leastMs = (depth: number): number => {
    const raw = nested(text, depth);
    const expected = `${'{"a":'.repeat(depth)}${text}${',"b":0}'.repeat(depth)}`;
    const times = Array.from({ length: 5 }, () => {
      const startMs = performance.now();
      const canonical = canonicalText(raw);
      const ms = performance.now() - startMs;
      assert.equal(canonical, expected);
      return ms;
    });
    return Math.min(...times);
  };
  const shallowMs = leastMs(1);
  assert.ok(leastMs(55) < 6 * shallowMs);
});

// SEC-33
test('a definition that is nested too deeply for a lock file has no canonical text', () => {
  assert.match(canonicalText(nested('1', 56)), /^\{"a":/);
  assert.throws(() => canonicalText(nested('1', 57)), JsonTextError);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WeakCache } from '../../src/catalog/weak-cache.ts';
import { collect } from '../support/used-bytes.ts';

test('a value is made once per key while it is referenced elsewhere', () => {
  const cache = new WeakCache<{ readonly key: string }>();
  const made: string[] = [];
  const get = (key: string) =>
    cache.get(key, () => {
      made.push(key);
      return { key };
    });
  const held = Array.from({ length: 200 }, (_, n) => get(`${n}`));
  for (const [n, value] of held.entries()) assert.equal(get(`${n}`), value);
  assert.equal(made.length, 200);
});

test('a value that nothing else references is collected, and made again', async () => {
  const cache = new WeakCache<object>();
  let count = 0;
  const make = () => {
    count++;
    return { text: 'x'.repeat(1_000) };
  };
  cache.get('a', make);
  // A weak reference keeps its value until the end of the turn in which it was made.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  cache.get('a', make);
  assert.equal(count, 2);
});

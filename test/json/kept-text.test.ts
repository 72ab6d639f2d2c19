import assert from 'node:assert/strict';
import { test } from 'node:test';
import { detach, KeptMap, KeptSet } from '../../src/json/kept-text.ts';
import { collect } from '../support/used-bytes.ts';

function heapBytes(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

/** A longer text would not be in the heap that is measured. */
const MESSAGE_CHARS = 900_000;

const TEXTS = ['', 'a', 'file:///a/place', 'größer', '木曜日', '😀', '\ud83d', 'a\udc00b'];

for (const text of TEXTS) {
  test(`a detached text equals its original: ${JSON.stringify(text)}`, () => assert.equal(detach(text), text));
}

test('a kept text does not keep the message that it was cut from', () => {
  const kept = new KeptMap<number>();
  const seen = new KeptSet();
  const before = heapBytes();
  for (let i = 0; i < 40; i++) {
    const message = Buffer.from(`${'x'.repeat(MESSAGE_CHARS)}/a/place/that/is/long/enough/${i}`).toString();
    const cut = message.slice(MESSAGE_CHARS);
    kept.set(detach(cut), i);
    seen.add(detach(cut));
  }
  const grownMiB = (heapBytes() - before) / 1_048_576;
  assert.equal(kept.size, 40);
  assert.equal(seen.size, 40);
  assert.ok(grownMiB < 10, `40 texts cut from messages keep ${grownMiB} MiB`);
});

test('any text can be looked up among kept texts, and removed', () => {
  const kept = new KeptMap<number>();
  kept.set(detach('a'), 1);
  assert.equal(kept.get('a'), 1);
  assert.ok(kept.has('a'));
  assert.deepEqual([...kept], [['a', 1]]);
  assert.ok(kept.delete('a'));
  assert.ok(!kept.has('a'));

  const seen = new KeptSet();
  seen.add(detach('a'));
  assert.deepEqual([...seen], ['a']);
  assert.ok(seen.delete('a'));
  assert.ok(!seen.has('a'));
});

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { SealedBox } from '../../../src/store/redis/sealed-box.ts';

const newKey = () => randomBytes(32).toString('base64url');

test('a sealed text is read by every process with the key, from its entry alone', () => {
  const key = newKey();
  const [one, two] = [new SealedBox([key]), new SealedBox([key])];
  for (const text of ['', 'a', 'ü\u{1F600}', '\ud800 alone', 'x'.repeat(100_000)]) {
    const sealed = one.seal('entry', text);
    assert.equal(one.open('entry', sealed), text);
    assert.equal(two.open('entry', sealed), text);
    assert.equal(two.open('entry2', sealed), undefined);
    assert.equal(new SealedBox([newKey()]).open('entry', sealed), undefined);
  }
});

test('texts of the old and of the new key are read while both are configured', () => {
  const [old, next] = [newKey(), newKey()];
  const [before, during, after] = [new SealedBox([old]), new SealedBox([next, old]), new SealedBox([next])];
  assert.equal(during.open('e', before.seal('e', 'x')), 'x');
  assert.equal(after.open('e', during.seal('e', 'x')), 'x');
  assert.equal(after.open('e', before.seal('e', 'x')), undefined);
});

// SEC-29
test('every changed bit and every cut of a sealed text is noticed', () => {
  const box = new SealedBox([newKey()]);
  const bytes = Buffer.from(box.seal('e', 'text'), 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    assert.equal(box.open('e', changed.toString('base64url')), undefined, `bit ${bit}`);
  }
  for (let end = 0; end < bytes.length; end++) {
    assert.equal(box.open('e', bytes.subarray(0, end).toString('base64url')), undefined);
  }
});

test('two texts that are equal look different', () => {
  const box = new SealedBox([newKey()]);
  assert.notEqual(box.seal('e', 'x'), box.seal('e', 'x'));
});

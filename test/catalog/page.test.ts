import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { cursorText, LIST_NAMES, page, parseCursor } from '../../src/catalog/page.ts';

test('all pages together have every item once and in order', () => {
  fc.assert(
    fc.property(fc.array(fc.string()), fc.integer({ min: 1, max: 7 }), (items, size) => {
      const seen: string[] = [];
      let offset: number | undefined = 0;
      while (offset !== undefined) {
        const { items: some, next } = page(items, offset, size);
        assert.ok(some.length <= size);
        seen.push(...some);
        offset = next;
      }
      assert.deepEqual(seen, items);
    }),
  );
});

test('an offset past the end of a list yields an empty last page', () => {
  assert.deepEqual(page(['a'], 5, 2), { items: [], next: undefined });
});

test('a cursor is parsed as it was written', () => {
  for (const list of LIST_NAMES) {
    assert.deepEqual(parseCursor(cursorText({ list, digest: 'd', offset: 3 })), { list, digest: 'd', offset: 3 });
  }
});

for (const text of [
  '',
  'x',
  '{}',
  '[]',
  '["tools","d"]',
  '["other","d",1]',
  '["tools","d",-1]',
  '["tools","d",1.5]',
  '["tools",1,1]',
]) {
  // M-008
  test(`"${text}" is not a cursor`, () => assert.equal(parseCursor(text), undefined));
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { reservedFor } from '../../src/catalog/names/prefixes.ts';

const text = fc.string({ unit: fc.constantFrom('a', 'b', '_'), maxLength: 4 });

// N-62
test('the index finds the same reserved names as a comparison with each prefix', () => {
  const prefixes = fc.array(fc.tuple(text, text), { maxLength: 6 });
  fc.assert(
    fc.property(prefixes, text, text, (all, own, name) => {
      const first = all.find(([other]) => !own.startsWith(other) && name.startsWith(other))?.[1];
      assert.equal(reservedFor(all, own, name), first);
    }),
  );
});

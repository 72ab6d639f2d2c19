import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { EndedSerials } from '../../../src/store/sessions/ended-serials.ts';

const MOST = 60;

const range = fc
  .record({ first: fc.integer({ min: 0, max: MOST }), more: fc.integer({ min: 0, max: 4 }), untilMs: fc.nat(100) })
  .map(({ first, more, untilMs }) => ({ first, last: first + more, untilMs }));

function assertSorted(ended: EndedSerials): void {
  for (const [i, { first, last }] of ended.ranges.entries()) {
    assert.ok(first <= last);
    const next = ended.ranges[i + 1];
    assert.ok(next === undefined || last + 1 < next.first, 'ranges neither overlap nor touch');
  }
}

// N-65
test('exactly the added serials are ended, in any order', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 80 }), (ranges) => {
      const ended = new EndedSerials();
      const model = new Set<number>();
      for (const each of ranges) {
        ended.add(each);
        for (let serial = each.first; serial <= each.last; serial++) model.add(serial);
        assertSorted(ended);
      }
      for (let serial = -1; serial <= MOST + 6; serial++) assert.equal(ended.has(serial), model.has(serial));
    }),
  );
});

// N-65
test('a serial stays ended at least as long as it was added for', () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 80 }), fc.nat(100), (ranges, nowMs) => {
      const ended = new EndedSerials();
      for (const each of ranges) ended.add(each);
      ended.removeExpired(nowMs);
      assertSorted(ended);
      for (const { first, last, untilMs } of ranges) {
        for (let serial = first; serial <= last; serial++) assert.ok(nowMs >= untilMs || ended.has(serial));
      }
    }),
  );
});

// N-65
test('joining the oldest ranges revives none and ends only those between them', () => {
  fc.assert(
    fc.property(fc.array(range, { minLength: 1, maxLength: 80 }), fc.integer({ min: 0, max: 20 }), (ranges, size) => {
      const ended = new EndedSerials();
      for (const each of ranges) ended.add(each);
      const before = [...ended.ranges];
      ended.joinOldest(size, 1_000);
      assertSorted(ended);
      assert.ok(ended.size <= Math.max(size, 1));
      for (const { first, last } of before) assert.ok(ended.has(first) && ended.has(last));
      assert.equal(ended.ranges[0]?.first, before[0]?.first);
      assert.equal(ended.ranges.at(-1)?.last, before.at(-1)?.last);
    }),
  );
});

// N-65
test('a client that opens and ends sessions in a loop costs one range', () => {
  const ended = new EndedSerials();
  for (let serial = 0; serial < 100_000; serial++) ended.add({ first: serial, last: serial, untilMs: serial });
  assert.deepEqual(ended.ranges, [{ first: 0, last: 99_999, untilMs: 99_999 }]);
});

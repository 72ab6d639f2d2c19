import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { RecordTexts } from '../../src/audit/record-texts.ts';

const LIMIT = 4_096;

/** Returns an event that counts how often it is read. */
function countedEvent(bytesIn: number): { readonly event: AuditEvent; readonly reads: () => number } {
  let reads = 0;
  const event: AuditEvent = {
    kind: 'request',
    bytesIn,
    get name() {
      reads++;
      return 'tool';
    },
  };
  return { event, reads: () => reads };
}

test('texts that are made late have the order and the times of their events', () => {
  let nowMs = 1_000;
  const texts = new RecordTexts(LIMIT, () => nowMs);
  texts.add({ kind: 'request', bytesIn: 1 });
  nowMs = 2_000;
  texts.add({ kind: 'request', bytesIn: 1_000_000 });
  nowMs = 3_000;
  texts.add({ kind: 'session' });
  nowMs = 9_000;
  assert.equal(texts.hasLate, true);
  assert.deepEqual(texts.take(), [
    '"time":"1970-01-01T00:00:01.000Z","kind":"request","bytesIn":1',
    '"time":"1970-01-01T00:00:02.000Z","kind":"request","bytesIn":1000000',
    '"time":"1970-01-01T00:00:03.000Z","kind":"session"',
  ]);
  assert.equal(texts.hasLate, false);
  assert.deepEqual(texts.take(), []);
});

test('the text of a large message is made at once, so that the message is not kept', () => {
  const texts = new RecordTexts(LIMIT);
  const [small, large] = [countedEvent(4_096), countedEvent(4_097)];
  texts.add(small.event);
  texts.add(large.event);
  assert.equal(small.reads(), 0);
  assert.ok(large.reads() > 0);
  texts.add({ ...countedEvent(0).event, requestId: 'x'.repeat(4_097) });
  assert.equal(texts.take().length, 3);
  assert.ok(small.reads() > 0);
});

test('events without a text are bounded', () => {
  const texts = new RecordTexts(LIMIT);
  const isDue = Array.from({ length: 128 }, () => texts.add({ kind: 'request' }));
  assert.equal(isDue.indexOf(true), 127);
});

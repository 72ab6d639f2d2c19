import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { cancelledParams } from '../../src/protocol/cancellation.ts';

for (const { given, sent } of [
  { given: { requestId: 1, reason: 'late', x: 1 }, sent: { requestId: 7, reason: 'late', x: 1 } },
  { given: { requestId: 1, reason: null }, sent: { requestId: 7 } },
  { given: { requestId: 1, reason: { code: 1 } }, sent: { requestId: 7 } },
]) {
  test(`the cancellation ${JSON.stringify(given)} is sent without an odd reason`, () => {
    assert.deepEqual(JSON.parse(cancelledParams('7', RawObject.of(given)).toString()), sent);
  });
}

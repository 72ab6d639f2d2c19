import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resultBytes } from '../../../src/gateway/records/message-bytes.ts';

test('the size of a result counts the bytes of its text', () => {
  assert.equal(resultBytes({ kind: 'result', result: '{"text":"Grüße"}' }), 18);
});

test('the size of a list is counted without making its text', () => {
  const list = {
    kind: 'result',
    get result(): string {
      return assert.fail('the text of the list was made');
    },
    tail: [Buffer.from('{"tools":'), Buffer.from('["ü"]'), Buffer.from('}}')],
  } as const;
  assert.equal(resultBytes(list), Buffer.byteLength('{"tools":["ü"]}'));
});

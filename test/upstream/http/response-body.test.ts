import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResponseBody } from '../../../src/upstream/http/response-body.ts';

const TEXT = '{"ä":"😀","n":1}';

test('a byte order mark before the text of a body is left out', () => {
  const body = new ResponseBody(undefined);
  body.add(Buffer.from(`\uFEFF${TEXT}`));
  assert.equal(body.text(), TEXT);
});

for (const length of [String(Buffer.byteLength(TEXT)), undefined, '2000000']) {
  test(`a body cut at any byte has its whole text, with the length ${length ?? 'unknown'}`, () => {
    const bytes = Buffer.from(TEXT);
    for (let at = 0; at <= bytes.length; at++) {
      const body = new ResponseBody(length);
      for (const part of [bytes.subarray(0, at), bytes.subarray(at)]) {
        if (part.length === 0) continue;
        const chunk = Buffer.from(part);
        body.add(chunk);
        chunk.fill(0);
      }
      assert.equal(body.bytes, bytes.length);
      assert.equal(body.text(), TEXT, `cut at ${at}`);
    }
  });
}

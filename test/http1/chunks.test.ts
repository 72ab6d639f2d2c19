import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChunkReader } from '../../src/http1/chunks.ts';
import { WireError } from '../../src/http1/error.ts';

/** Reads the pieces one after the other. Returns the data, and the bytes after the body. */
function read(reader: ChunkReader, pieces: readonly Buffer[]): { readonly data: string; readonly rest: string } {
  const data: Buffer[] = [];
  const rest: Buffer[] = [];
  for (const piece of pieces) {
    let at = 0;
    while (at < piece.length) {
      if (reader.isComplete) {
        rest.push(piece.subarray(at));
        break;
      }
      const count = Math.min(reader.bytesLeft, piece.length - at);
      if (count > 0) {
        data.push(piece.subarray(at, at + count));
        reader.consume(count);
        at += count;
      } else {
        at = reader.feed(piece, at, piece.length);
      }
    }
  }
  return { data: Buffer.concat(data).toString(), rest: Buffer.concat(rest).toString() };
}

const BODY = Buffer.from('5;a=b\r\nhello\r\n00A\r\n, chunks!!\r\n0\r\nx-trailer: 1\r\n\r\nHTTP');

test('a chunked body cut at any byte is read completely', () => {
  for (let at = 0; at <= BODY.length; at++) {
    const reader = new ChunkReader();
    assert.deepEqual(
      read(reader, [BODY.subarray(0, at), BODY.subarray(at)]),
      { data: 'hello, chunks!!', rest: 'HTTP' },
      `cut at ${at}`,
    );
    assert.ok(reader.isComplete);
  }
});

for (const text of [
  'x\r\n',
  '\r\n',
  '-1\r\n',
  '1 \r\n',
  '5\n',
  '5\rx',
  '1\r\nabc',
  '1\r\na\rb',
  '5;\0\r\n',
  '0\r\na\0: b\r\n\r\n',
  '0\r\n\rx',
  '1234567890123\r\n',
  `1;${'x'.repeat(5_000)}\r\n`,
  `0\r\n${`x: ${'y'.repeat(1_000)}\r\n`.repeat(70)}\r\n`,
]) {
  // SEC-18
  test(`the chunk framing ${JSON.stringify(text.slice(0, 20))} of ${text.length} bytes is refused`, () => {
    assert.throws(
      () => read(new ChunkReader(), [Buffer.from(text)]),
      (thrown) => thrown instanceof WireError && thrown.code === 'not-http',
    );
  });
}

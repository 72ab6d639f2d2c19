import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HttpMessages } from '../../bench/http-messages.ts';

const WIRE = [
  'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello',
  'HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n',
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n',
  'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n',
  'DELETE /mcp HTTP/1.1\r\nhost: a\r\n\r\n',
  'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\r\n\r\n',
].join('');

const BODIES = ['hello', '', 'abc0123456789', '', '', '\r\n\r\n'];

function read(wire: Buffer, step: number): string[] {
  const bodies: string[] = [];
  const messages = new HttpMessages((_head, body) => bodies.push(body.toString()));
  for (let at = 0; at < wire.length; at += step) messages.push(wire.subarray(at, at + step));
  return bodies;
}

for (const step of [1, 2, 3, 7, 64, 100_000]) {
  test(`messages are the same when they come in pieces of ${step} bytes`, () => {
    assert.deepEqual(read(Buffer.from(WIRE), step), BODIES);
  });
}

test('a chunk without a size is refused', () => {
  const wire = Buffer.from('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n');
  assert.throws(() => read(wire, wire.length), /without a size/);
});

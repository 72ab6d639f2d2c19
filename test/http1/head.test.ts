import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readHead } from '../../src/http1/head.ts';
import { quote } from '../support/test-name.ts';

function head(...lines: readonly string[]): string {
  return `${lines.join('\r\n')}\r\n\r\n`;
}

const OK = 'HTTP/1.1 200 OK';

const readable = [
  { lines: [OK, 'Content-Length: 5'], framing: 5, keepMs: Infinity },
  { lines: ['HTTP/1.1 200', 'content-length:5'], framing: 5, keepMs: Infinity },
  { lines: ['HTTP/1.1 200 ', 'content-length:\t 5 \t'], framing: 5, keepMs: Infinity },
  { lines: [OK, 'Transfer-Encoding: Chunked'], framing: 'chunked', keepMs: Infinity },
  { lines: [OK], framing: 'close', keepMs: 0 },
  { lines: ['HTTP/1.1 204 No Content'], framing: 0, keepMs: Infinity },
  { lines: ['HTTP/1.1 304 Not Modified', 'content-length: 5'], framing: 0, keepMs: Infinity },
  { lines: ['HTTP/1.1 100 Continue'], framing: 0, keepMs: Infinity },
  { lines: [OK, 'content-length: 0', 'connection: Close'], framing: 0, keepMs: 0 },
  { lines: [OK, 'content-length: 0', 'connection: x, close'], framing: 0, keepMs: 0 },
  { lines: [OK, 'content-length: 0', 'keep-alive: timeout=5, max=100'], framing: 0, keepMs: 5_000 },
  { lines: [OK, 'content-length: 0', 'connection: keep-alive', 'keep-alive: max=1'], framing: 0, keepMs: Infinity },
  { lines: ['HTTP/1.0 200 OK', 'content-length: 0'], framing: 0, keepMs: 0 },
  { lines: ['HTTP/1.0 200 OK', 'content-length: 0', 'connection: keep-alive'], framing: 0, keepMs: Infinity },
];

for (const { lines, framing, keepMs } of readable) {
  test(`the body after ${quote(lines.join(' | '), 58)} is ${framing}`, () => {
    const read = readHead(head(...lines));
    assert.equal(read.framing, framing);
    assert.equal(read.keepMs, keepMs);
  });
}

const refused = [
  ['HTTP/2 200 OK'],
  ['HTTP/1.2 200 OK'],
  ['http/1.1 200 OK'],
  ['HTTP/1.1  200 OK'],
  ['HTTP/1.1 20 OK'],
  ['HTTP/1.1 099 OK'],
  ['HTTP/1.1 200 O\0K'],
  ['HTTP/1.1 101 Switching Protocols', 'upgrade: x'],
  [OK, 'content-length: 5', 'content-length: 6'],
  [OK, 'content-length: 5', 'Content-Length: 5'],
  [OK, 'content-length: 5, 5'],
  [OK, 'content-length: +5'],
  [OK, 'content-length: -5'],
  [OK, 'content-length: 0x5'],
  [OK, 'content-length: 5 5'],
  [OK, 'content-length:'],
  [OK, 'content-length: 9999999999999999'],
  [OK, 'content-length: 5', 'transfer-encoding: chunked'],
  ['HTTP/1.1 204 No Content', 'content-length: 5', 'transfer-encoding: chunked'],
  [OK, 'transfer-encoding: gzip, chunked'],
  [OK, 'transfer-encoding: identity'],
  [OK, 'transfer-encoding: chunked', 'transfer-encoding: chunked'],
  [OK, 'transfer-encoding: chunked\u000b'],
  ['HTTP/1.0 200 OK', 'transfer-encoding: chunked'],
  [OK, 'content-type : application/json'],
  [OK, ' content-type: application/json'],
  [OK, 'x: a', ' folded'],
  [OK, 'x: a', '\tfolded'],
  [OK, 'x: a\rb'],
  [OK, 'x: a\nb: c'],
  [OK, 'x: a\0b'],
  [OK, 'x: a\u007fb'],
  [OK, ': nameless'],
  [OK, 'no colon'],
  [OK, 'näme: x'],
  ['', OK],
];

for (const lines of refused) {
  test(`the head ${quote(lines.join(' | '), 58)} is refused`, () => {
    assert.throws(() => readHead(head(...lines)), { code: 'not-http' });
  });
}

test('header names become lower case, repeated headers lists; values stay unchanged', () => {
  const { status, headers } = readHead(head(OK, 'X-One: a', 'x-ONE:  b, c ', 'x-one:', 'Y: ü é', '__proto__: z'));
  assert.equal(status, 200);
  assert.deepEqual(Object.entries(headers), [
    ['x-one', ['a', 'b, c', '']],
    ['y', 'ü é'],
    ['__proto__', 'z'],
  ]);
});

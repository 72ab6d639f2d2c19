import assert from 'node:assert/strict';
import { test } from 'node:test';

import { requestBytes, RequestHead } from '../../src/http1/request.ts';

test('a request is written with host, headers and length', () => {
  const head = new RequestHead('POST', 'a.example:81', '/mcp?x=1', ['Accept', 'text/plain', 'x', 'é']);
  const lines = [
    'POST /mcp?x=1 HTTP/1.1',
    'host: a.example:81',
    'connection: keep-alive',
    'Accept: text/plain',
    'x: é',
  ];
  assert.equal(requestBytes(head, '{}'), [...lines, 'content-length: 2', '', '{}'].join('\r\n'));
});

test('a body beyond ASCII is written in UTF-8, and its length counts bytes', () => {
  const bytes = requestBytes(new RequestHead('POST', 'a', '/', ['x', 'é']), '"ä€😀"');
  assert.ok(Buffer.isBuffer(bytes));
  const [head = '', body = ''] = bytes.toString('latin1').split('\r\n\r\n');
  assert.match(head, /\r\nx: é\r\ncontent-length: 11$/);
  assert.equal(Buffer.from(body, 'latin1').toString('utf8'), '"ä€😀"');
});

test('a request without a body has no length', () => {
  const text = requestBytes(new RequestHead('GET', 'a', '/', []), undefined);
  assert.equal(text, 'GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\n\r\n');
});

test('further headers take the place of those with the same name', () => {
  const head = new RequestHead('POST', 'h', '/', ['X-Trace', 'old', 'x-other', 'x-trace', 'x-trace', 'older']);
  const { headers } = head.with(['x-trace', 'new'], new Set(['x-trace']));
  assert.deepEqual(headers, ['x-other', 'x-trace', 'x-trace', 'new']);
});

test('a configured host header replaces ours', () => {
  const text = requestBytes(new RequestHead('GET', 'a', '/', ['Host', 'b.example']), undefined);
  assert.equal(text, 'GET / HTTP/1.1\r\nconnection: keep-alive\r\nHost: b.example\r\n\r\n');
});

for (const [name, value] of [
  ['x', 'a\r\nevil: 1'],
  ['x', 'a\nb'],
  ['x', 'a\rb'],
  ['x', 'a\0b'],
  ['x', 'a\u007fb'],
  ['x', '€'],
  ['x\r\ny', 'a'],
  ['x y', 'a'],
  ['x:', 'a'],
  ['', 'a'],
] as const) {
  test(`a header ${JSON.stringify(`${name}: ${value}`)} is not sent`, () => {
    const head = new RequestHead('GET', 'a', '/', [name, value]);
    assert.throws(() => requestBytes(head, undefined), { code: 'unsendable' });
  });
}

for (const path of ['/a b', '/a\r\nevil: 1', '/ä', '']) {
  test(`the path ${JSON.stringify(path)} is not sent`, () => {
    const head = new RequestHead('GET', 'a', path, []);
    assert.throws(() => requestBytes(head, undefined), { code: 'unsendable' });
  });
}

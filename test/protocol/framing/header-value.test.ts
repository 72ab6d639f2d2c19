import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { decodeHeaderValue, encodeHeaderValue, trimBlanks } from '../../../src/protocol/framing/header-value.ts';
import { quote } from '../../support/test-name.ts';

const encoded = [
  { text: 'us-west1', value: 'us-west1' },
  { text: 'us west 1', value: 'us west 1' },
  { text: '', value: '' },
  { text: 'file:///path/to/file%20name.txt', value: 'file:///path/to/file%20name.txt' },
  { text: 'Hello, 世界', value: '=?base64?SGVsbG8sIOS4lueVjA==?=' },
  { text: ' padded ', value: '=?base64?IHBhZGRlZCA=?=' },
  { text: ' us-west1', value: '=?base64?IHVzLXdlc3Qx?=' },
  { text: 'us-west1 ', value: '=?base64?dXMtd2VzdDEg?=' },
  { text: 'line1\nline2', value: '=?base64?bGluZTEKbGluZTI=?=' },
  { text: 'line1\r\nline2', value: '=?base64?bGluZTENCmxpbmUy?=' },
  { text: '\tindented', value: '=?base64?CWluZGVudGVk?=' },
  { text: 'a\tb', value: '=?base64?YQli?=' },
  { text: '日本語', value: '=?base64?5pel5pys6Kqe?=' },
  { text: '=?base64?literal?=', value: '=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=' },
  { text: '=?base64?=', value: '=?base64?PT9iYXNlNjQ/PQ==?=' },
  { text: '=?base64?open', value: '=?base64?open' },
  { text: '=?BASE64?x?=', value: '=?BASE64?x?=' },
  { text: '\ufeffbom', value: '=?base64?77u/Ym9t?=' },
];

for (const { text, value } of encoded) {
  // T-039
  test(`${quote(text, 30)} is encoded as ${quote(value, 30)}`, () => {
    assert.equal(encodeHeaderValue(text), value);
    assert.equal(decodeHeaderValue(value), text);
  });
}

const decoded = [
  { name: 'white space around a value', value: ' \t foo\t ', text: 'foo' },
  { name: 'a tab inside', value: 'a\tb', text: 'a\tb' },
  { name: 'a marker that is never closed', value: '=?base64?SGVsbG8=', text: '=?base64?SGVsbG8=' },
  { name: 'a marker in capitals', value: '=?BASE64?SGVsbG8=?=', text: '=?BASE64?SGVsbG8=?=' },
  { name: 'base64 without a marker', value: 'SGVsbG8=', text: 'SGVsbG8=' },
  { name: 'a marker whose ends overlap', value: '=?base64?=', text: '=?base64?=' },
  { name: 'the base64 of nothing', value: '=?base64??=', text: '' },
  { name: 'base64 without its padding', value: '=?base64?SGVsbG8?=', text: undefined },
  { name: 'too much padding', value: '=?base64?SGVsbG8==?=', text: undefined },
  { name: 'characters that are none of base64', value: '=?base64?SGVs!!!bG8=?=', text: undefined },
  { name: 'the alphabet of URLs', value: '=?base64?__8=?=', text: undefined },
  { name: 'spaces in base64', value: '=?base64?SGVs bG8=?=', text: undefined },
  { name: 'bits after the end', value: '=?base64?SGVsbG9=?=', text: undefined },
  { name: 'bytes that are no UTF-8', value: '=?base64?/w==?=', text: undefined },
  { name: 'a character beyond ASCII', value: 'é', text: undefined },
  { name: 'a line break', value: 'a\r\nb', text: undefined },
  { name: 'a zero byte', value: 'a\u0000b', text: undefined },
  { name: 'a line break at the end', value: 'a\n', text: undefined },
];

for (const { name, value, text } of decoded) {
  // T-011
  test(`${name} in a header is ${text === undefined ? 'refused' : `read as ${JSON.stringify(text)}`}`, () => {
    assert.equal(decodeHeaderValue(value), text);
  });
}

const anyText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'grapheme' }),
  fc.string({ unit: fc.constantFrom('=?base64?', '?=', ' ', '\t', '\r', '\n', 'a', '=', '\u007f', '\u0000', 'é') }),
);

// T-039
test('any text survives encoding and decoding', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      assert.equal(decodeHeaderValue(encodeHeaderValue(text)), text);
    }),
    { numRuns: 5_000 },
  );
});

// S-018
test('no header value has a control character, lone surrogates included', () => {
  const halves = fc.string({ unit: fc.constantFrom('\ud800', '\udc00', 'a', '\n') });
  fc.assert(
    fc.property(fc.oneof(anyText, halves), (text) => {
      const value = encodeHeaderValue(text);
      assert.match(value, /^[\x20-\x7e]*$/);
      assert.equal(value, value.trim());
      assert.equal(decodeHeaderValue(value), text.toWellFormed());
    }),
    { numRuns: 5_000 },
  );
});

test('any header value is decoded or refused', () => {
  fc.assert(fc.property(anyText, (value) => decodeHeaderValue(value) === undefined || true));
});

test('only spaces and tabs are trimmed, in linear time', { timeout: 120_000 }, () => {
  assert.equal(trimBlanks('\u00a0a\u00a0'), '\u00a0a\u00a0');
  assert.equal(trimBlanks(' \t '), '');
  const middle = `a${' '.repeat(1_000_000)}b`;
  assert.equal(trimBlanks(` ${middle} `), middle);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canonicalUri } from '../../../src/catalog/resources/uri-form.ts';

const SAME = [
  'drive:///board/x',
  'drive://board/x',
  'drive:/board/x',
  'DRIVE://Board/x',
  'drive://board//x',
  'drive://board/./x',
  'drive://board/public/../x',
  'drive://board/%78',
  'drive://board/%2578',
  'drive://board%2Fx',
  'drive://board/public/%2e%2E/x',
  'drive:\\\\board\\x',
  'drive://user@board:80/x',
  'drive://board/x/',
  'dri\tve://board/x',
  'drive://ada@home@board/x',
  'drive://ada:p%40ss@board:80/x',
];

for (const uri of SAME) {
  // SEC-09
  test(`${JSON.stringify(uri)} has the form of drive://board/x`, () => {
    assert.equal(canonicalUri(uri), 'drive:/board/x');
  });
}

// SEC-09
test('a URI that cannot be decoded or is too long has no form', () => {
  assert.equal(canonicalUri('drive://board/%zz'), undefined);
  assert.equal(canonicalUri('drive://board/%25252578'), 'drive:/board/x');
  assert.equal(canonicalUri('drive://board/%2525252578'), undefined, 'encoded five times');
  assert.equal(canonicalUri(`drive://board/${'x'.repeat(9_000)}`), undefined);
});

const UNCLEAR = [
  'file:///secret//../x',
  'file:///s%65cret//../x',
  'file:///secret//a/../../x',
  'file:///secret/%20/../x',
  'file:///secret/%00/%2e%2e',
  'file:///secret/\t/../x',
  'file:///secret/ ../x',
  'http://h%6fst/../x',
  'drive://board/../x',
  'drive://x/../x/y',
  'https://h/a%2Fb/../secret/x',
  'https://h/secret/%252e%252e/x',
  'https://h/secret/x/..?q',
  'drive://h/a\\b/../secret/x',
  'file:///C:/../secret',
];

for (const uri of UNCLEAR) {
  // SEC-09
  test(`${JSON.stringify(uri)} has no form, since servers read its steps in different ways`, () => {
    assert.equal(canonicalUri(uri), undefined);
  });
}

const UNCLEAR_HOSTS = [
  'https://a%2F@internal.example.com/x',
  'https://host\\@internal.example.com/x',
  'https://internal.example.com%2F@other/x',
  'https://in%C2%ADternal.example.com/x',
  'https://ｉnternal.example.com/x',
  'https://internal。example.com/x',
  'https://faß.de/x',
  'http://2130706433/x',
  'http://0x7f.1/x',
  'http://0177.0.0.1/x',
  'http://127.1/x',
  'http://[0:0:0:0:0:0:0:1]/x',
  'http://[::ffff:7f00:1]/x',
  'http://internal.example.com../x',
  'https://user@/internal.example.com/x',
  'https://./internal.example.com/x',
  'drive://a%2F@board/x',
  'drive://a\\@board/x',
  'drive://ada@/board/x',
  'file://x%2Fy/secret/key',
  'file://x\\y/secret/key',
];

for (const uri of UNCLEAR_HOSTS) {
  // SEC-09
  test(`${JSON.stringify(uri)} has no form, since servers read its host in different ways`, () => {
    assert.equal(canonicalUri(uri), undefined);
  });
}

const WITH_HOSTS = [
  ['https://a@b@Internal.example.com:443?q=x@y/z', 'https:/internal.example.com?q=x@y/z'],
  ['https:\\\\internal.example.com/x', 'https:/internal.example.com/x'],
  ['https:internal.example.com./x', 'https:/internal.example.com/x'],
  ['http://127.0.0.1:8080/x', 'http:/127.0.0.1/x'],
  ['http://[::1]:8080/x', 'http:/[::1]/x'],
  ['https://xn--mnchen-3ya.de/x', 'https:/xn--mnchen-3ya.de/x'],
  ['notes:///日本/x', 'notes:/日本/x'],
  ['file:///Über uns/x', 'file:/überuns/x'],
  ['urn:isbn:123', 'urn:/isbn'],
  ['search://?q=foo', 'search:/?q=foo'],
] as const;

for (const [uri, form] of WITH_HOSTS) {
  test(`${uri} has the form ${form}`, () => assert.equal(canonicalUri(uri), form));
}

// SEC-09
test('steps that all servers read in one way have a form', () => {
  assert.equal(canonicalUri('file:///a/./b/../x'), 'file:/a/x');
  assert.equal(canonicalUri('file:///../x'), 'file:/x');
  assert.equal(canonicalUri('file:///my%20file//x'), 'file:/myfile/x');
});

test('the cases of a path are kept', () => {
  assert.equal(canonicalUri('file:///home/Ada/Notes.md'), 'file:/home/Ada/Notes.md');
});

const SLOW = [
  `drive:///${'?'.repeat(8_000)}`,
  `drive:///a${'\u0301'.repeat(4_000)}${'\u0316'.repeat(4_000)}`,
  `https://${Array.from({ length: 4_000 }, (_, i) => String.fromCodePoint(0x4e00 + i)).join('')}/`,
];

for (const uri of SLOW) {
  // SEC-24
  test(`thousands of URIs of ${uri.length} characters like ${encodeURI(uri.slice(0, 12))} are read at once`, () => {
    for (let i = 0; i < 2_000; i++) canonicalUri(uri);
  });
}

// SEC-09
test('a URI with 31 marks in a row has no form', () => {
  assert.equal(canonicalUri(`drive:///a${'\u0301'.repeat(30)}`), `drive:/á${'\u0301'.repeat(29)}`);
  assert.equal(canonicalUri(`drive:///a${'\u0301'.repeat(31)}`), undefined);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canonicalUri } from '../../src/policy/uri-form.ts';

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
];

for (const uri of UNCLEAR) {
  // SEC-09
  test(`${JSON.stringify(uri)} has no form, since servers read its steps in different ways`, () => {
    assert.equal(canonicalUri(uri), undefined);
  });
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

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escapeUnseen, hasUnseen, oneLine, SHOWN_CHARS, shownLines, shownText } from '../src/peer-text.ts';

/** Characters that a person does not see, by kind. */
const UNSEEN: Readonly<Record<string, readonly number[]>> = {
  'C0 controls': Array.from({ length: 0x20 }, (_, code) => code),
  'DEL and C1 controls': Array.from({ length: 0x21 }, (_, at) => 0x7f + at),
  'line separators': [0x2028, 0x2029],
  'bidirectional controls': [0x061c, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069],
  'characters without width': [0x200b, 0x200c, 0x200d, 0x200e, 0x200f, 0x2060, 0xfeff],
  tags: Array.from({ length: 0x80 }, (_, at) => 0xe0000 + at),
  'variation selectors': [0xfe00, 0xfe0f, 0xe0100, 0xe01ef],
};

for (const [kind, codes] of Object.entries(UNSEEN)) {
  // N-73
  test(`${kind} are shown as escapes, on every way out`, () => {
    for (const code of codes) {
      const text = `a${String.fromCodePoint(code)}b`;
      assert.ok(hasUnseen(text), code.toString(16));
      assert.match(shownText(text), /^a(?:\\[nrt]|(?:\\u[0-9a-f]{4}){1,2})b$/, code.toString(16));
      assert.ok(!hasUnseen(oneLine(text)), code.toString(16));
      const json = escapeUnseen(JSON.stringify({ text }));
      assert.ok(!hasUnseen(json), code.toString(16));
      assert.deepEqual(JSON.parse(json), { text });
    }
  });
}

// N-73
test('visible text of any script stays as it is', () => {
  for (const text of ['files read', 'größe', '名前', 'имя', 'שם', 'اسم', '👍', '"quoted\\"']) {
    assert.deepEqual([shownText(text), oneLine(text), escapeUnseen(text)], [text, text, text]);
  }
});

const CUT = [
  { text: 'x'.repeat(SHOWN_CHARS), shown: 'x'.repeat(SHOWN_CHARS) },
  { text: 'x'.repeat(4_000_000), shown: `${'x'.repeat(SHOWN_CHARS - 1)}…` },
  { text: '\u009b'.repeat(4_000_000), shown: `${'\\u009b'.repeat(33)}…` },
  { text: `x${'👍'.repeat(SHOWN_CHARS)}`, shown: `x${'👍'.repeat(99)}…` },
  { text: '\u{e0041}'.repeat(SHOWN_CHARS), shown: `${'\\udb40\\udc41'.repeat(16)}\\udb40…` },
];

for (const { text, shown } of CUT) {
  // N-70
  test(`${text.length} units of U+${text.codePointAt(1)?.toString(16)} are cut to ${SHOWN_CHARS} whole characters`, () => {
    assert.equal(shownText(text), shown);
    assert.equal(shownText(shown), shown);
    assert.ok(shown.length <= SHOWN_CHARS);
  });
}

test('lines of a text stay lines, and a terminal gets one', () => {
  assert.equal(shownLines('a\n\tb\r\u001B[31m', 100), 'a\n\tb\\r\\u001b[31m');
  assert.equal(shownLines(`a\n${'b'.repeat(100)}`, 10), 'a\nbbbbbbb…');
  assert.equal(oneLine('a\r\n\tb\u001B[31m'), 'a b\\u001b[31m');
});

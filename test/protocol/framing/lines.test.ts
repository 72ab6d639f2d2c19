import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { LineSplitter } from '../../../src/protocol/framing/lines.ts';

interface Line {
  readonly line: string;
  readonly isCut: boolean;
}

function split(chunks: readonly Buffer[], limitBytes: number): Line[] {
  const lines: Line[] = [];
  const splitter = new LineSplitter(limitBytes, (line, isCut) => lines.push({ line, isCut }));
  for (const chunk of chunks) splitter.push(chunk);
  splitter.end();
  return lines;
}

/** Reference implementation: splits the complete bytes into lines. */
function expected(bytes: Buffer, limitBytes: number): Line[] {
  const lines: Line[] = [];
  for (let start = 0; start < bytes.length;) {
    const found = bytes.indexOf(0x0a, start);
    const end = found < 0 ? bytes.length : found;
    const stop = end > start && bytes[end - 1] === 0x0d ? end - 1 : end;
    const isCut = stop - start > limitBytes;
    const line = bytes.toString('utf8', start, isCut ? start + limitBytes : stop);
    if (stop > start) lines.push({ line, isCut });
    start = end + 1;
  }
  return lines;
}

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const places = [0, ...at.map((place) => place % (bytes.length + 1)), bytes.length].toSorted((a, b) => a - b);
  return places.slice(1).map((end, i) => bytes.subarray(places[i], end));
}

suite('lines', () => {
  const cases = [
    { name: 'many lines in one chunk', chunks: ['a\nbb\nccc\n'], lines: ['a', 'bb', 'ccc'] },
    { name: 'one line in many chunks', chunks: ['a', 'b', 'c', '\n'], lines: ['abc'] },
    { name: 'CRLF, also in two chunks', chunks: ['a\r\nb\r', '\nc\r\n'], lines: ['a', 'b', 'c'] },
    { name: 'a CR within a line stays', chunks: ['a\rb\n'], lines: ['a\rb'] },
    { name: 'empty lines are ignored', chunks: ['\n\r\n', 'a\n\n', '\r', '\n'], lines: ['a'] },
    { name: 'NUL is a character', chunks: ['a\0b\n'], lines: ['a\0b'] },
    { name: 'the end of the stream ends a line', chunks: ['a\nb'], lines: ['a', 'b'] },
  ];
  for (const { name, chunks, lines } of cases) {
    test(name, () => {
      const buffers = chunks.map((chunk) => Buffer.from(chunk));
      assert.deepEqual(
        split(buffers, 100),
        lines.map((line) => ({ line, isCut: false })),
      );
    });
  }

  const limits = [
    { text: '12345678\n', lines: [{ line: '12345678', isCut: false }] },
    { text: '12345678\r\n', lines: [{ line: '12345678', isCut: false }] },
    { text: '123456789\n', lines: [{ line: '12345678', isCut: true }] },
    { text: '12345678\r\r\n', lines: [{ line: '12345678', isCut: true }] },
    { text: '12345678\rx\n', lines: [{ line: '12345678', isCut: true }] },
    // Four of these characters take eight bytes.
    { text: 'éééé\n', lines: [{ line: 'éééé', isCut: false }] },
    {
      text: '123456789abcdef\nok\n',
      lines: [
        { line: '12345678', isCut: true },
        { line: 'ok', isCut: false },
      ],
    },
  ];
  for (const { text, lines } of limits) {
    // REL-12
    test(`the limit of 8 bytes is exact for ${JSON.stringify(text)}`, () => {
      const bytes = Buffer.from(text);
      assert.deepEqual(split([bytes], 8), lines);
      assert.deepEqual(split(cut(bytes, [...bytes.keys()]), 8), lines);
    });
  }

  test('a too long line is reported once, before it ends', () => {
    const lines: Line[] = [];
    const splitter = new LineSplitter(4, (line, isCut) => lines.push({ line, isCut }));
    splitter.push(Buffer.from('1234'));
    assert.deepEqual(lines, []);
    splitter.push(Buffer.from('5'));
    splitter.push(Buffer.from('6789'));
    assert.deepEqual(lines, [{ line: '1234', isCut: true }]);
  });

  for (const [what, limits, chunks, lines] of [
    ['smaller', [8, 4], ['123456', '78\n'], [{ line: '1234', isCut: true }]],
    ['smaller', [8, 4], ['123456', '\n'], [{ line: '1234', isCut: true }]],
    ['smaller', [8, 4], ['123456', ''], [{ line: '1234', isCut: true }]],
    ['greater', [4, 8], ['1234', '5678\n'], [{ line: '12345678', isCut: false }]],
  ] as const) {
    test(`a ${what} limit holds for an unfinished line too: ${JSON.stringify(chunks)}`, () => {
      const seen: Line[] = [];
      const splitter = new LineSplitter(limits[0], (line, isCut) => seen.push({ line, isCut }));
      splitter.push(Buffer.from(chunks[0]));
      splitter.limitBytes = limits[1];
      splitter.push(Buffer.from(chunks[1]));
      splitter.end();
      assert.deepEqual(seen, lines);
    });
  }

  test('what follows the beginning of a too long line is reported to its end', () => {
    const bytes = Buffer.from('1\n23456789\n\n1234\r\n12345\r\nabcdefgh');
    const expected = ['1;', '23456789;', '1234;', '12345;', 'abcdefgh;'];
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 30 }), (at) => {
        let seen = '';
        const splitter = new LineSplitter(
          4,
          (line, isCut) => (seen += isCut ? line : `${line};`),
          undefined,
          (rest, isEnd) => (seen += rest.toString().replace('\r', '') + (isEnd ? ';' : '')),
        );
        for (const chunk of cut(bytes, at)) splitter.push(chunk);
        splitter.end();
        assert.equal(seen, expected.join(''));
      }),
    );
  });

  // REL-12
  test('bytes split anywhere give the same lines', () => {
    const alphabet = fc.constantFrom('a', 'é', '語', '🙂', '\r', '\n', '\0', '{"a":1}');
    const bytes = fc.oneof(
      fc.array(alphabet, { maxLength: 60 }).map((parts) => Buffer.from(parts.join(''))),
      fc.uint8Array({ maxLength: 60 }).map((array) => Buffer.from(array)),
    );
    fc.assert(
      fc.property(
        bytes,
        fc.array(fc.nat(200), { maxLength: 20 }),
        fc.integer({ min: 1, max: 20 }),
        (all, at, limit) => {
          assert.deepEqual(split(cut(all, at), limit), expected(all, limit));
        },
      ),
      { numRuns: 5_000 },
    );
  });
});

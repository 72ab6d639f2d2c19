import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import {
  COMMENT,
  EventReader,
  eventText,
  EventTooLargeError,
  type StreamPosition,
} from '../../../src/protocol/framing/event-stream.ts';
import { quote } from '../../support/test-name.ts';

interface Seen {
  readonly events: readonly (readonly [type: string, data: string])[];
  readonly position: StreamPosition;
}

function read(pieces: readonly Uint8Array[], limitChars = 1_000_000): Seen {
  const events: [string, string][] = [];
  const position: StreamPosition = { lastEventId: '', retryMs: undefined };
  const reader = new EventReader(position, limitChars, (type, data) => events.push([type, data]));
  for (const piece of pieces) reader.feed(Buffer.from(piece));
  return { events, position };
}

const bytes = (text: string): Uint8Array => Buffer.from(text, 'utf8');

/** Splits bytes into chunks of one byte. */
const single = (text: string): Uint8Array[] => [...bytes(text)].map((byte) => Uint8Array.of(byte));

const cases: readonly { name: string; text: string; events: [string, string][]; id?: string; retryMs?: number }[] = [
  { name: 'an event with LF', text: 'data: a\n\n', events: [['message', 'a']] },
  { name: 'an event with CRLF', text: 'event: x\r\ndata: a\r\n\r\n', events: [['x', 'a']] },
  {
    name: 'an event with CR',
    text: 'data: a\rdata: b\r\rdata: c\n\n',
    events: [
      ['message', 'a\nb'],
      ['message', 'c'],
    ],
  },
  { name: 'data without a space', text: 'data:a\n\n', events: [['message', 'a']] },
  { name: 'data with two spaces, of which one stays', text: 'data:  a\n\n', events: [['message', ' a']] },
  { name: 'several lines of data', text: 'data: a\ndata: b\n\n', events: [['message', 'a\nb']] },
  { name: 'a byte order mark', text: '\uFEFFdata: a\n\n', events: [['message', 'a']] },
  { name: 'comments', text: `${COMMENT}: hi\ndata: a\n\n${COMMENT}`, events: [['message', 'a']] },
  { name: 'unknown fields', text: 'nope: 1\nData: 2\ndata: a\n\n', events: [['message', 'a']] },
  {
    name: 'a priming event',
    text: 'id: p-1\nretry: 500\ndata: \n\n',
    events: [['message', '']],
    id: 'p-1',
    retryMs: 500,
  },
  { name: 'an event of an id alone', text: 'id: p-2\n\n', events: [], id: 'p-2' },
  {
    name: 'an id whose event never ended',
    text: 'id: 1\ndata: a\n\nid: 2\ndata: b\n',
    events: [['message', 'a']],
    id: '1',
  },
  { name: 'a retry that is no number', text: 'retry: soon\ndata: a\n\n', events: [['message', 'a']] },
  { name: 'characters of two to four bytes', text: 'data: ä€😀 \u2028\n\n', events: [['message', 'ä€😀 \u2028']] },
  { name: 'an event cut off by the end', text: 'data: a\n\ndata: b', events: [['message', 'a']] },
];

for (const { name, text, events, id = '', retryMs } of cases) {
  for (const [how, pieces] of [['whole', [bytes(text)]] as const, ['byte by byte', single(text)] as const]) {
    test(`${name} is read as specified, ${how}`, () => {
      assert.deepEqual(read(pieces), { events, position: { lastEventId: id, retryMs } });
    });
  }
}

test('a stream split anywhere gives the same events', () => {
  const text = 'id: 7\r\nevent: message\r\ndata: {"ä":"😀"}\r\n\r\n: c\rdata: x\ndata: €\n\nretry: 9\n\n';
  const whole = bytes(text);
  const expected = read([whole]);
  assert.equal(expected.events.length, 2);
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: whole.length }), { maxLength: 12 }), (cuts) => {
      const at = [0, ...cuts.toSorted((a, b) => a - b), whole.length];
      const pieces = at.slice(1).map((end, i) => whole.subarray(at[i], end));
      assert.deepEqual(read(pieces), expected);
    }),
  );
});

test('an event beyond the limit is an error, however it is split', () => {
  assert.throws(() => read([bytes(`data: ${'x'.repeat(200)}\n\n`)], 100), EventTooLargeError);
  assert.throws(() => read(single(`data: ${'x'.repeat(200)}`), 100), EventTooLargeError);
  assert.throws(
    () =>
      read(
        Array.from({ length: 50 }, () => bytes('data: xxxx\n')),
        100,
      ),
    EventTooLargeError,
  );
  assert.throws(
    () =>
      read(
        Array.from({ length: 50 }, () => bytes('id: xxxxxxxxxxx')),
        100,
      ),
    EventTooLargeError,
  );
});

/** Reads a stream whose events beyond 100 characters are skipped. Returns the data of the events, and the ids of what was skipped. */
function skip(pieces: readonly Uint8Array[]): (string | number | undefined)[] {
  const seen: (string | number | undefined)[] = [];
  const position: StreamPosition = { lastEventId: '', retryMs: undefined };
  const reader = new EventReader(
    position,
    100,
    (_, data) => seen.push(data),
    undefined,
    undefined,
    (message) => {
      seen.push(message.answeredId());
      return message.answeredId() !== undefined;
    },
  );
  for (const piece of pieces) reader.feed(Buffer.from(piece));
  return seen;
}

const long = 'è'.repeat(300);
const first = `event: message\ndata: {"jsonrpc":"2.0","id":7,"result":{"a":"${long}"}}\n\n`;
const last = `id: 4\ndata: {"result":{"a":"${long}"},\ndata: "jsonrpc":"2.0","id":"8"}\n\n`;
const notice = `data: {"method":"a","params":{"a":"${long}"},"jsonrpc":"2.0"}\n\n`;
const events = `data: a\n\n${first}${last}: x\n\ndata: b\n\n${notice}id: 5\ndata: c\n\n`;
const read100 = ['a', 7, 8, 'b', NaN, 'c'];

for (const [name, stream] of [
  ['LF', events],
  ['CRLF', events.replaceAll('\n', '\r\n')],
  ['CR', events.replaceAll('\n', '\r')],
] as const) {
  test(`events beyond the limit are skipped, and the others read: ${name}`, () => {
    assert.deepEqual(skip([bytes(stream)]), read100);
    // The end of the last event may be the middle of a CRLF.
    assert.deepEqual(skip(single(`${stream}: x\n`)), read100);
    fc.assert(
      fc.property(fc.array(fc.nat(Buffer.byteLength(stream)), { maxLength: 12 }), (cuts) => {
        const at = [0, ...cuts.toSorted((a, b) => a - b), Buffer.byteLength(stream)];
        const pieces = at.slice(1).map((end, i) => bytes(stream).subarray(at[i], end));
        assert.deepEqual(skip(pieces), read100);
      }),
    );
  });
}

for (const end of ['\n', '\r\n', '\r']) {
  test(`an event beyond the limit follows a blank line in two chunks: ${quote(end)}`, () => {
    const answer = (id: number, text: string) => `data: {"jsonrpc":"2.0","id":${id},"result":"${text}"}${end}${end}`;
    const text = `${answer(5, 'a')}${answer(6, 'b')}${answer(7, 'x'.repeat(300))}data: c${end}${end}: x\n`;
    const expected = skip([bytes(text)]);
    assert.deepEqual(expected.slice(2), [7, 'c']);
    for (let at = 40; at < 110; at++) {
      for (let next = at; next < 180; next++) {
        const cuts = [0, at, next, next + 90];
        const pieces = cuts.map((cut, i) => bytes(text.slice(cut, cuts[i + 1])));
        assert.deepEqual(skip(pieces), expected, cuts.join());
      }
    }
  });
}

// What a program logs may have an id too, and so may a request.
test('the id at the end of an event beyond the limit counts only for an answer', () => {
  const params = `{"a":"${long}"}`;
  assert.throws(() => skip([bytes(`data: {"level":"info","text":"${long}","id":7}\n\n`)]), EventTooLargeError);
  assert.deepEqual(skip([bytes(`data: {"jsonrpc":"2.0","params":${params},"method":"a","id":7}\n\n`)]), [NaN]);
  assert.deepEqual(skip([bytes(`data: {"params":${params},"method":"a","jsonrpc":"2.0","id":7}\n\n`)]), [NaN]);
});

test('an event beyond the limit that shows no request, or does not end, is an error', () => {
  assert.throws(() => skip([bytes(`data: {"result":{"id":7,"a":"${long}"}}\n\n`)]), EventTooLargeError);
  const endless = `data: {"jsonrpc":"2.0","id":7,"result":{"a":"${long}`;
  assert.deepEqual(skip(single(endless)), []);
  assert.throws(() => skip([bytes(`: ${'\r\n: '.repeat(300)}\r\n${endless}\n\n`)]), EventTooLargeError);
  assert.throws(() => skip(single(`${endless}${'x'.repeat(1_000)}`)), EventTooLargeError);
});

test('a comment line of any length is skipped', () => {
  const pieces = Array.from({ length: 50 }, () => bytes('x'.repeat(100)));
  assert.deepEqual(read([...pieces, bytes('\ndata: a\n\n')], 100).events, [['message', 'a']]);
});

// The parser makes an error of each.
test('lines that are no field have no stack traces, and events do', () => {
  const depth = Error.stackTraceLimit;
  const depths: (readonly [string, number])[] = [];
  const reader = new EventReader(
    { lastEventId: '', retryMs: undefined },
    100,
    (_, data) => {
      depths.push([data, Error.stackTraceLimit]);
      if (data === 'thrown') throw new TypeError('of the reader');
    },
    undefined,
    () => depths.push(['', Error.stackTraceLimit]),
  );
  reader.feed(Buffer.from('a\nb\ndata: x\n\nc\nretry: d\n'));
  assert.equal(Error.stackTraceLimit, depth);
  assert.throws(() => reader.feed(Buffer.from('e\ndata: thrown\n\n')), TypeError);
  assert.equal(Error.stackTraceLimit, depth);
  const ignored = ['', 0] as const;
  assert.deepEqual(depths, [ignored, ignored, ['x', depth], ignored, ignored, ignored, ['thrown', depth]]);
});

const texts = [
  { fields: { data: '{}' }, text: 'data: {}\n\n' },
  { fields: { event: 'message', data: '{}', id: 'a.1_b-2' }, text: 'id: a.1_b-2\nevent: message\ndata: {}\n\n' },
  { fields: { id: '1', data: '', retryMs: 0 }, text: 'id: 1\nretry: 0\ndata: \n\n' },
];

for (const { fields, text } of texts) {
  test(`${JSON.stringify(fields)} is written as an event`, () => assert.equal(eventText(fields), text));
}

const refused = [
  { data: 'a\nb' },
  { data: 'a\rb' },
  { data: 'a\r\n\r\ndata: b' },
  { data: '', id: '' },
  { data: '', id: 'a b' },
  { data: '', id: '1\ndata: x' },
  { data: '', id: '1\0' },
  { data: '', id: 'ä' },
  { data: '', id: 'x'.repeat(201) },
  { data: '', event: 'a\nb' },
  { data: '', event: '' },
  { data: '', retryMs: 1.5 },
  { data: '', retryMs: -1 },
  { data: '', retryMs: Number.NaN },
];

for (const fields of refused) {
  // SEC-27
  test(`${quote(fields)} is refused as an event`, () => {
    assert.throws(() => eventText(fields), TypeError);
  });
}

// SEC-27
test('only what an unfinished event may have is pending, at most the limit', () => {
  const pendingAfter = (text: string, times: number): number => {
    const reader = new EventReader({ lastEventId: '', retryMs: undefined }, 1_000, () => undefined);
    for (let n = 0; n < times; n++) reader.feed(Buffer.from(text));
    return reader.pendingBytes;
  };
  const blank = [': ping\r\n\r\n', ': ping\n\n', 'event: ping\n\n', 'id: 7\r\rretry: 5\r\r', '\n\n\n'];
  for (const text of blank) assert.equal(pendingAfter(text, 1_000), 0, JSON.stringify(text));
  for (const text of ['x: y\n', 'xxxx']) assert.ok(pendingAfter(text, 1_000) <= 1_000, JSON.stringify(text));
  assert.equal(pendingAfter('data: a', 1), 7);
});

test('any written event is read back as one equal event', () => {
  const corpus = [
    '',
    ' ',
    ':',
    'data: x',
    'id: 1',
    '\u2028',
    '\u2029',
    '\u0085',
    '\v',
    '\f',
    '\0',
    '\uFEFF',
    '"\\r\\n"',
  ];
  const data = fc.oneof(fc.constantFrom(...corpus), fc.string({ unit: 'binary' }));
  fc.assert(
    fc.property(data, data, (a, b) => {
      const line = `${a}${b}`.replaceAll(/[\r\n]/g, '').toWellFormed();
      const text = eventText({ data: line }) + eventText({ id: '2', event: 'message', data: '{}' });
      assert.deepEqual(read([bytes(text)]).events, [
        ['message', line],
        ['message', '{}'],
      ]);
    }),
    { numRuns: 500 },
  );
});

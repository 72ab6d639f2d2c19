import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';

import { ResponseReader } from '../../src/http1/response.ts';

interface Read {
  readonly statuses: number[];
  body: string;
  /** Undefined until the end. */
  isClean: boolean | undefined;
  error: unknown;
}

/** Reads one response from these pieces, in a buffer that is reused. */
function read(pieces: readonly Uint8Array[], isClosed: boolean): Read {
  const outcome: Read = { statuses: [], body: '', isClean: undefined, error: undefined };
  const reader = new ResponseReader({
    onHead: ({ status }) => outcome.statuses.push(status),
    onBody: (bytes, from, to) => {
      assert.ok(to > from);
      outcome.body += bytes.toString('latin1', from, to);
    },
    onEnd: (isClean) => {
      assert.equal(outcome.isClean, undefined);
      outcome.isClean = isClean;
    },
  });
  const buffer = Buffer.alloc(Math.max(1, ...pieces.map(({ length }) => length)));
  reader.start();
  try {
    for (const piece of pieces) {
      buffer.fill(0).set(piece);
      reader.feed(buffer, piece.length);
    }
    if (isClosed) reader.onConnectionEnd();
  } catch (thrown) {
    outcome.error = thrown;
  }
  return outcome;
}

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const places = [0, ...at.toSorted((a, b) => a - b), bytes.length];
  return places.slice(1).map((to, index) => bytes.subarray(places[index], to));
}

const OK = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`;

const whole = [
  { name: 'a length', text: `${OK}Content-Length: 5\r\n\r\nhello`, body: 'hello' },
  { name: 'no body', text: `${OK}Content-Length: 0\r\n\r\n`, body: '' },
  { name: 'status 204', text: 'HTTP/1.1 204 No Content\r\n\r\n', body: '', status: 204 },
  { name: 'status 304', text: 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n', body: '', status: 304 },
  { name: 'chunks', text: `${CHUNKED}2\r\nhe\r\n003\r\nllo\r\n0\r\n\r\n`, body: 'hello' },
  {
    name: 'sizes in both cases',
    text: `${CHUNKED}A\r\n0123456789\r\na\r\n0123456789\r\n00\r\n\r\n`,
    body: '01234567890123456789',
  },
  { name: 'chunk extensions', text: `${CHUNKED}5;a=b;c="d e"\r\nhello\r\n0;last\r\n\r\n`, body: 'hello' },
  { name: 'trailers', text: `${CHUNKED}5\r\nhello\r\n0\r\nx: y\r\nContent-Length: 9\r\n\r\n`, body: 'hello' },
  { name: 'a chunk that looks like an end', text: `${CHUNKED}5\r\n0\r\n\r\n\r\n0\r\n\r\n`, body: '0\r\n\r\n' },
  {
    name: 'interim responses',
    text: `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${OK}Content-Length: 5\r\n\r\nhello`,
    body: 'hello',
  },
  { name: 'an end by closing', text: `${OK}\r\nhello`, body: 'hello', isClosed: true },
];

for (const { name, text, body, status = 200, isClosed = false } of whole) {
  test(`${name}: the response is read at any boundaries`, () => {
    const bytes = Buffer.from(text, 'latin1');
    const expected = { statuses: [status], body, isClean: true, error: undefined };
    assert.deepEqual(read([bytes], isClosed), expected);
    assert.deepEqual(read(cut(bytes, [...bytes.keys()].slice(1)), isClosed), expected);
    for (let at = 1; at < bytes.length; at++)
      assert.deepEqual(read(cut(bytes, [at]), isClosed), expected, `cut at ${at}`);
  });

  if (isClosed) continue;
  test(`bytes after a response with ${name} are no part of it`, () => {
    const bytes = Buffer.from(`${text}HTTP/1.1 200 OK\r\n`, 'latin1');
    assert.deepEqual(read([bytes], false), { statuses: [status], body, isClean: false, error: undefined });
  });

  test(`a response with ${name} does not end before its last byte`, () => {
    const bytes = Buffer.from(text, 'latin1');
    for (let to = 0; to < bytes.length; to++) {
      assert.equal(read([bytes.subarray(0, to)], true).isClean, undefined, `cut at ${to}`);
    }
  });
}

const refused = [
  { name: 'a size that is no number', text: `${CHUNKED}x\r\n` },
  { name: 'no size', text: `${CHUNKED}\r\n` },
  { name: 'a negative size', text: `${CHUNKED}-1\r\n` },
  { name: 'a size with 0x', text: `${CHUNKED}0x5\r\nhello` },
  { name: 'a size with a space', text: `${CHUNKED}5 \r\nhello` },
  { name: 'a size beyond all bounds', text: `${CHUNKED}1000000000000\r\n` },
  { name: 'a size that ends with LF alone', text: `${CHUNKED}5\nhello` },
  { name: 'a size that ends with CR alone', text: `${CHUNKED}5\rhello` },
  { name: 'a chunk longer than its size', text: `${CHUNKED}5\r\nhello!\r\n` },
  { name: 'a chunk that ends with LF alone', text: `${CHUNKED}5\r\nhello\n0\r\n\r\n` },
  { name: 'an extension with a line break', text: `${CHUNKED}5;a\nb\r\nhello` },
  { name: 'an extension without end', text: `${CHUNKED}5;${'x'.repeat(5_000)}` },
  { name: 'a trailer with NUL', text: `${CHUNKED}0\r\nx: \0\r\n\r\n` },
  { name: 'trailers without end', text: `${CHUNKED}0\r\n${'x: y\r\n'.repeat(20_000)}` },
  { name: 'a head without end', text: `${OK}${'x: y\r\n'.repeat(20_000)}` },
  { name: 'a head beyond 64 KiB', text: `${OK}x: ${'y'.repeat(65_536)}\r\ncontent-length: 0\r\n\r\n` },
  { name: 'a head with bare LF', text: 'HTTP/1.1 200 OK\ncontent-length: 0\n\n' },
  { name: 'a head with bare CR', text: `${OK}x: \ry` },
  { name: 'another protocol', text: 'SSH-2.0-OpenSSH_9\r\n' },
  { name: 'an empty line first', text: `\r\n${OK}content-length: 0\r\n\r\n` },
];

for (const { name, text } of refused) {
  test(`${name}: the response is refused at any boundaries`, () => {
    const bytes = Buffer.from(text, 'latin1');
    const places =
      bytes.length > 1_000
        ? [[], Array.from(bytes.keys()).filter((at) => at % 97 === 96)]
        : [[], [...bytes.keys()].slice(1)];
    for (const place of places) {
      const { error, isClean } = read(cut(bytes, place), true);
      assert.ok(error instanceof Error && 'code' in error && error.code === 'not-http', String(error));
      assert.equal(isClean, undefined);
    }
  });
}

test('any body in any framing is read unchanged, with any chunk boundaries', () => {
  const bodies = fc.uint8Array({ maxLength: 300 });
  const places = fc.array(fc.nat(2_000), { maxLength: 12 });
  const framings = fc.constantFrom('length', 'chunked', 'close');
  const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(bodies, places, framings, sizes, (body, at, framing, chunkSizes) => {
      const bytes = Buffer.concat(framed(Buffer.from(body), framing, chunkSizes));
      const outcome = read(
        cut(
          bytes,
          at.map((place) => place % bytes.length),
        ),
        framing === 'close',
      );
      assert.deepEqual(outcome, {
        statuses: [200],
        body: Buffer.from(body).toString('latin1'),
        isClean: true,
        error: undefined,
      });
    }),
  );
});

test('no input makes it report a response twice, or a body before a head', () => {
  const pieces = fc.constantFrom(
    OK,
    'Content-Length: 3\r\n',
    'Transfer-Encoding: chunked\r\n',
    '\r\n',
    '3\r\nabc\r\n',
    '0\r\n\r\n',
    'abc',
    '\n',
    '\r',
    '\0',
    ' ',
    ';',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 12 }), fc.boolean(), (texts, isClosed) => {
      const outcome = read(
        texts.map((text) => Buffer.from(text)),
        isClosed,
      );
      assert.ok(outcome.statuses.length <= 1);
      if (outcome.statuses.length === 0) assert.equal(outcome.body, '');
    }),
    { numRuns: 2_000 },
  );
});

function framed(body: Buffer<ArrayBuffer>, framing: string, sizes: readonly number[]): Buffer<ArrayBuffer>[] {
  if (framing === 'close') return [Buffer.from(`${OK}\r\n`), body];
  if (framing === 'length') return [Buffer.from(`${OK}content-length: ${body.length}\r\n\r\n`), body];
  const pieces: Buffer<ArrayBuffer>[] = [Buffer.from(CHUNKED)];
  for (let at = 0, n = 0; at < body.length; n++) {
    const piece = body.subarray(at, at + (sizes[n % sizes.length] ?? 1));
    pieces.push(
      Buffer.from(`${piece.length.toString(16)}${n % 2 === 0 ? '' : ';x=y'}\r\n`),
      piece,
      Buffer.from('\r\n'),
    );
    at += piece.length;
  }
  pieces.push(Buffer.from('0\r\n\r\n'));
  return pieces;
}

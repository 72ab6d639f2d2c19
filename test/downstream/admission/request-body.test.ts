import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { readBody, type RequestBody } from '../../../src/downstream/admission/request-body.ts';
import { BodyBudget } from '../../../src/downstream/memory/body-budget.ts';
import { serving } from '../posts.ts';

const OPTIONS = { timeout: 120_000 };
const ignore = () => undefined;
const BUDGET = new BodyBudget({ totalBytes: 1_000, principalBytes: 1_000 }, { onRefused: ignore, onStalled: ignore });

test('a body that has arrived is gone if its client has gone before it is read', OPTIONS, async () => {
  const begun = Promise.withResolvers<IncomingMessage>();
  await using server = await serving((incoming) => begun.resolve(incoming));
  const client = connect(Number(new URL(server.url).port), '127.0.0.1');
  client.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello');
  const incoming = await begun.promise;
  while (!incoming.complete) await new Promise((resolve) => setImmediate(resolve));
  incoming.on('error', ignore);
  client.destroy();
  await new Promise((resolve) => incoming.once('close', resolve));
  const limits = { limitBytes: 1_000, budget: BUDGET, principal: 'ann' };
  const body = await new Promise((resolve) => readBody(incoming, limits, '5', resolve));
  assert.deepEqual([incoming.complete, body], [true, { kind: 'gone' }]);
});

const CHUNKED = 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
const chunk = (bytes: number) => `${bytes.toString(16)}\r\n${'x'.repeat(bytes)}\r\n`;

/** Reads a body that comes in pieces, by this budget. */
async function readPieces(budget: BodyBudget, pieces: readonly string[], isCut = false): Promise<RequestBody> {
  const read = Promise.withResolvers<RequestBody>();
  await using server = await serving((incoming) => {
    incoming.on('error', ignore);
    readBody(incoming, { limitBytes: 10_000, budget, principal: 'ann' }, undefined, read.resolve);
    incoming.once('data', () => {
      for (const piece of pieces) client.write(piece);
      if (isCut) client.destroy();
    });
  });
  const client = connect(Number(new URL(server.url).port), '127.0.0.1').on('error', ignore);
  client.write(CHUNKED + chunk(10));
  const body = await read.promise;
  client.destroy();
  return body;
}

// N-26
test('the bytes of a body in pieces are released however it ends', OPTIONS, async () => {
  const bounds = { totalBytes: 20_000, principalBytes: 20_000 };
  const budget = new BodyBudget(bounds, { onRefused: ignore, onStalled: ignore });
  for (let n = 0; n < 3; n++) {
    const whole = await readPieces(budget, [chunk(9_000), '0\r\n\r\n']);
    assert.deepEqual([whole.kind, budget.bytes], ['text', 0]);
    assert.deepEqual([(await readPieces(budget, [chunk(9_991)])).kind, budget.bytes], ['too-large', 0]);
    assert.deepEqual([(await readPieces(budget, [chunk(9_000)], true)).kind, budget.bytes], ['gone', 0]);
  }
});

// N-26
test('a body that the budget has no room for is refused, and takes none', OPTIONS, async () => {
  const bounds = { totalBytes: 12_000, principalBytes: 12_000 };
  const budget = new BodyBudget(bounds, { onRefused: ignore, onStalled: ignore });
  assert.equal(budget.reserve('bob', 7_000), true);
  assert.deepEqual([(await readPieces(budget, [chunk(9_000)])).kind, budget.bytes], ['no-room', 7_000]);
  budget.release('bob', 7_000);
  assert.equal((await readPieces(budget, [chunk(9_000), '0\r\n\r\n'])).kind, 'text');
});

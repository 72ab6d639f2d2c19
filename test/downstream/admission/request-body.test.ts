import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { readBody } from '../../../src/downstream/admission/request-body.ts';
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

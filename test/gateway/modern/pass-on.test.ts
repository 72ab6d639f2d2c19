import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import type { Owner } from '../../../src/gateway/front/front.ts';
import { passOn, passOnOrFail } from '../../../src/gateway/modern/pass-on.ts';
import { ModernRequest } from '../../../src/gateway/modern/modern-request.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { TestStream } from '../../support/gateway-parts.ts';
import { LOCAL_CALLER } from '../../support/modern-client.ts';

const DONE: Answer = { kind: 'result', result: '{}' };
type Handle = Owner['handleModernRequest'];

/** A request, and another process that handles it in this way. */
function passingOn(handle: (...args: Parameters<Handle>) => void) {
  const cancelled: unknown[] = [];
  const stream = new TestStream();
  const sink = Object.assign(stream, { receivedMs: 7, answer: () => undefined });
  const host = { toFailure: () => DONE, finish: () => undefined };
  const request = { kind: 'request', id: '1', method: 'tools/call', params: RawObject.EMPTY } as const;
  const one = new ModernRequest(host, request, LOCAL_CALLER, sink, undefined, undefined);
  const owner: Owner = {
    handleMessage: () => Promise.resolve(),
    forward: () => Promise.resolve('answered'),
    handleModernRequest: (...args) => {
      handle(...args);
      return { cancel: (reason: unknown) => void cancelled.push(reason), close: () => undefined };
    },
  };
  return { one, owner, stream, cancelled };
}

test('a passed-on request gets the messages and the answer of the other process', async () => {
  for (const isRecorded of [true, false]) {
    const { one, owner, stream } = passingOn((_request, _caller, back) => {
      assert.equal(back.receivedMs, 7);
      back.send('{"jsonrpc":"2.0","method":"notifications/x"}');
      back.answer(DONE, isRecorded);
    });
    assert.equal(await passOn(one, owner), DONE);
    assert.deepEqual(stream.notifications, [['notifications/x', null]]);
    assert.equal(one.isAnsweredElsewhere, isRecorded);
  }
});

test('a request that its process did not get fails if no other can answer it', async () => {
  const { one, owner } = passingOn((_request, _caller, _back, onUnreachable) => onUnreachable());
  assert.equal(await passOn(one, owner), undefined);
  await assert.rejects(passOnOrFail(one, owner), { code: 'store-unavailable' });
});

test('a request that cannot be passed on fails with the reason', async () => {
  const error = new GatewayError('too-large');
  const { one, owner } = passingOn((_request, _caller, _back, onUnreachable) => onUnreachable(error));
  await assert.rejects(passOn(one, owner), error);
});

test('a cancellation reaches the process that has the request', async () => {
  const { one, owner, cancelled } = passingOn((_request, _caller, back) => setImmediate(() => back.answer(DONE)));
  const answered = passOn(one, owner);
  one.cancel('user stopped it');
  await answered;
  assert.deepEqual(cancelled, ['user stopped it']);
});

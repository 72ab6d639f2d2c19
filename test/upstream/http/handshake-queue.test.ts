import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { HandshakeQueue, INITIALIZED } from '../../../src/upstream/http/handshake-queue.ts';
import type { Outgoing } from '../../../src/upstream/rpc/transport.ts';

const message = (method: string, id?: number): Outgoing => ({
  text: '{}',
  method,
  ...(id === undefined ? {} : { id }),
});

function queueOf() {
  const posted: (string | undefined)[] = [];
  return { posted, queue: new HandshakeQueue(({ method }) => posted.push(method)) };
}

// L-005
test('messages wait until the server has accepted notifications/initialized', () => {
  const { queue, posted } = queueOf();
  queue.send(message('initialize', 1));
  queue.onAccepted('initialize');
  queue.send(message(INITIALIZED));
  queue.send(message('tools/list', 2));
  queue.send(message('prompts/list', 3));
  assert.deepEqual(posted, ['initialize', INITIALIZED]);
  queue.onAccepted(INITIALIZED);
  queue.send(message('ping', 4));
  assert.deepEqual(posted, ['initialize', INITIALIZED, 'tools/list', 'prompts/list', 'ping']);
});

test('a request that is forgotten while it waits is not posted', () => {
  const { queue, posted } = queueOf();
  queue.send(message(INITIALIZED));
  queue.send(message('tools/list', 2));
  queue.send(message('prompts/list', 3));
  assert.equal(queue.forget(2), 'unsent');
  assert.equal(queue.forget(2), undefined);
  queue.onAccepted(INITIALIZED);
  assert.deepEqual(posted, [INITIALIZED, 'prompts/list']);
});

test('limit undeliveredBytes: of messages that wait, notifications are dropped', () => {
  const { queue, posted } = queueOf();
  const text = 'x'.repeat(LIMITS.undeliveredBytes / 2);
  queue.send(message(INITIALIZED));
  for (const method of ['a', 'b', 'c']) queue.send({ text, method });
  queue.send(message('tools/list', 2));
  queue.onAccepted(INITIALIZED);
  assert.deepEqual(posted, [INITIALIZED, 'a', 'b', 'tools/list']);
});

test('limit undeliveredMessages: of messages that wait, answers are dropped', () => {
  const posted: Outgoing[] = [];
  const reached: string[] = [];
  const queue = new HandshakeQueue(
    (one) => posted.push(one),
    (limit) => reached.push(limit),
  );
  queue.send(message(INITIALIZED));
  for (let n = 0; n <= LIMITS.undeliveredMessages; n++) queue.send({ text: String(n) });
  queue.send(message('tools/list', 2));
  queue.onAccepted(INITIALIZED);
  assert.equal(posted.length, 1 + LIMITS.undeliveredMessages + 1);
  assert.equal(posted.at(-1)?.method, 'tools/list');
  assert.deepEqual(reached, ['undeliveredMessages']);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
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

test('L-005 messages wait until the server has accepted notifications/initialized', () => {
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
  queue.forget(2);
  queue.onAccepted(INITIALIZED);
  assert.deepEqual(posted, [INITIALIZED, 'prompts/list']);
});

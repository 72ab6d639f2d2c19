import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type ExchangeHandler, OutgoingChannel } from '../../src/replicas/outgoing-channel.ts';

const TIMEOUT = { timeout: 120_000 };

function handlerOf(onBroken: () => void): ExchangeHandler {
  const ignore = () => undefined;
  return { onResponse: ignore, onData: ignore, onRefused: ignore, onDrained: ignore, onBroken };
}

test('a channel is not closed under a request that began as it was retired', TIMEOUT, async () => {
  const [socket] = duplexPair();
  const channel = new OutgoingChannel(socket, 'key');
  channel.retire();
  const exchange = channel.begin(
    '',
    '',
    true,
    handlerOf(() => undefined),
  );
  await nextTurn();
  await nextTurn();
  assert.equal(channel.isOpen, true);
  exchange?.reset();
  await nextTurn();
  assert.equal(channel.isOpen, false);
});

test('a request on a closed channel ends', TIMEOUT, async () => {
  const [socket] = duplexPair();
  const channel = new OutgoingChannel(socket, 'key');
  channel.retire();
  await nextTurn();
  const broken = Promise.withResolvers<void>();
  channel.begin('', '', true, handlerOf(broken.resolve));
  await broken.promise;
});

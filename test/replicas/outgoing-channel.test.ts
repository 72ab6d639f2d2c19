import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { once } from 'node:events';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createServer, getCACertificates, setDefaultCACertificates } from 'node:tls';
import { bareFrame, FRAME } from '../../src/replicas/frames.ts';
import { InternalKeys } from '../../src/replicas/internal-keys.ts';
import { CHANNEL_PROTOCOL } from '../../src/replicas/internal-tls.ts';
import { type ExchangeHandler, OutgoingChannel } from '../../src/replicas/outgoing-channel.ts';
import { freshKey } from '../../src/store/key-store.ts';
import { makeCertificate } from '../support/certificate.ts';
import { stopTime } from '../support/stopped-time.ts';

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

test('a replica whose answer came while this one stood still is alive', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const [socket, other] = duplexPair();
  const channel = new OutgoingChannel(socket, 'key');
  const [isAlive, pinged] = [channel.isAlive(), once(other, 'data')];
  await pinged;
  // After a pause, timers that are due run before sockets are read.
  time.pass(3_600_000);
  other.write(bareFrame(FRAME.pong, 0));
  assert.equal(await isAlive, true);
  const later = channel.isAlive();
  time.pass(3_600_000);
  assert.equal(await later, false);
});

// SEC-45
test('a server with a trusted certificate, and without the ring, gets nothing', TIMEOUT, async () => {
  await using certificate = await makeCertificate();
  const trusted = getCACertificates('default');
  setDefaultCACertificates([...trusted, certificate.cert]);
  const received: Buffer[] = [];
  const { cert, key } = certificate;
  const server = createServer({ cert, key, ALPNProtocols: [CHANNEL_PROTOCOL] }, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => received.push(chunk));
  });
  try {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const bound = server.address();
    assert.ok(typeof bound === 'object' && bound !== null);
    const keys = new InternalKeys();
    keys.update([freshKey(Date.now())]);
    const opened = await OutgoingChannel.open({ host: '127.0.0.1', port: bound.port }, keys.newest);
    assert.equal(opened, undefined, 'a channel was opened');
    assert.deepEqual(received, []);
  } finally {
    setDefaultCACertificates(trusted);
    server.close();
  }
});

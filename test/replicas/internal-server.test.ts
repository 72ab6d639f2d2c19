import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect as connectPlain } from 'node:net';
import { test } from 'node:test';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { type ForwardedHead, forwardedText, senderText } from '../../src/replicas/forwarded-head.ts';
import { dataFrame, FRAME, FrameReader, requestFrame, responseParts } from '../../src/replicas/frames.ts';
import { type InternalKey, InternalKeys } from '../../src/replicas/internal-keys.ts';
import { type InternalServer, openInternalServer } from '../../src/replicas/internal-server.ts';
import { CHANNEL_PROTOCOL, INTERNAL_TLS } from '../../src/replicas/internal-tls.ts';
import { freshKey, withFreshKey } from '../../src/store/key-store.ts';
import { TcpRelay } from '../support/tcp-relay.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const SELF = 'member-1';

interface Opened extends AsyncDisposable {
  readonly server: InternalServer;
  readonly keys: InternalKeys;
  readonly handled: ForwardedHead[];
  readonly refused: string[];
}

async function open(): Promise<Opened> {
  const keys = new InternalKeys();
  keys.update([freshKey(Date.now())]);
  const [handled, refused]: [ForwardedHead[], string[]] = [[], []];
  const parts = {
    keys,
    metrics: { countInternalRefusal: (reason: string) => void refused.push(reason) },
    isSelf: (member: string) => member === SELF,
    onLimit: () => undefined,
  };
  const server = await openInternalServer({ host: '127.0.0.1', port: 0 }, parts, ({ outgoing }, head) => {
    handled.push(head);
    if (head.target !== '/unread') outgoing.end('handled');
  });
  return { server, keys, handled, refused, [Symbol.asyncDispose]: () => server.close() };
}

type Texts = readonly [sender: string, forwarded: string];

function head(own: Partial<ForwardedHead> = {}): Texts {
  const principal = { key: 'anna', label: 'anna', scopes: [] };
  const whole: ForwardedHead = {
    to: SELF,
    principal,
    view: '',
    call: randomUUID(),
    kind: 'http',
    method: 'GET',
    target: '/mcp',
    headers: [],
    ...own,
  };
  return [senderText(whole), forwardedText(whole)];
}

function connectTls(
  port: number,
  { id, key }: Pick<InternalKey, 'id' | 'key'>,
  own: ConnectionOptions = {},
): TLSSocket {
  const socket = connect({
    host: '127.0.0.1',
    port,
    ...INTERNAL_TLS,
    ALPNProtocols: [CHANNEL_PROTOCOL],
    pskCallback: () => ({ psk: key, identity: id }),
    checkServerIdentity: () => new Error('without the key'),
    ...own,
  });
  socket.on('error', () => undefined);
  return socket;
}

/** Sends requests on one connection. Resolves with their statuses; `refused` if the connection ends before. */
async function send(
  port: number,
  key: Pick<InternalKey, 'id' | 'key'>,
  requests: readonly Texts[],
  own: ConnectionOptions = {},
): Promise<readonly number[] | 'refused'> {
  const { promise, resolve } = Promise.withResolvers<readonly number[] | 'refused'>();
  const reader = new FrameReader();
  const statuses: number[] = [];
  const socket = connectTls(port, key, own);
  socket.on('close', () => resolve('refused'));
  socket.on('data', (chunk: Buffer) => {
    for (const { kind, payload } of reader.read(chunk)) {
      if (kind === FRAME.response) statuses.push(responseParts(payload)?.head.status ?? 0);
      if (kind === FRAME.refused) statuses.push(payload.readUInt32BE(0));
    }
    if (statuses.length === requests.length) resolve(statuses);
  });
  socket.once('secureConnect', () => {
    for (const [at, texts] of requests.entries()) socket.write(requestFrame(at + 1, true, ...texts));
  });
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}

// SEC-45
test('only a holder of the ring reaches the port', OPTIONS, async () => {
  await using opened = await open();
  const { server, keys, handled, refused } = opened;
  const { newest } = keys;
  assert.deepEqual(await send(server.port, newest, [head()]), [200]);
  const strangers = [
    { id: newest.id, key: randomBytes(32) },
    { id: 'unknown', key: newest.key },
    { id: '', key: newest.key },
  ];
  for (const stranger of strangers) assert.equal(await send(server.port, stranger, [head()]), 'refused');
  const others: readonly ConnectionOptions[] = [
    { pskCallback: () => null, rejectUnauthorized: false },
    { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' },
    { ALPNProtocols: ['http/1.1'] },
  ];
  for (const own of others) assert.equal(await send(server.port, newest, [head()], own), 'refused');
  await waitUntil(() => refused.length >= strangers.length + others.length);
  assert.deepEqual(new Set(refused), new Set(['handshake']));
  assert.equal(await send(server.port, newest, [head()], { ALPNProtocols: [] }), 'refused');
  assert.equal(refused.at(-1), 'protocol');
  assert.equal(handled.length, 1);
});

// R10
test('a replica that also has a newer protocol speaks the common one', OPTIONS, async () => {
  await using opened = await open();
  const { server, keys, handled } = opened;
  const newer = `${CHANNEL_PROTOCOL}0`;
  const both: ConnectionOptions = { ALPNProtocols: [newer, CHANNEL_PROTOCOL] };
  assert.deepEqual(await send(server.port, keys.newest, [head()], both), [200]);
  assert.equal(await send(server.port, keys.newest, [head()], { ALPNProtocols: [newer] }), 'refused');
  assert.equal(handled.length, 1);
});

// SEC-45
test('plain HTTP, and a client that only connects, reach nothing', OPTIONS, async () => {
  await using opened = await open();
  const socket = connectPlain(opened.server.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write('GET /requests HTTP/1.1\r\nhost: x\r\n\r\n');
  socket.end(requestFrame(1, true, ...head()));
  socket.resume();
  await once(socket, 'close');
  assert.deepEqual(opened.handled, []);
});

// SEC-45
test('a client refuses a server without the ring', OPTIONS, async () => {
  await using stranger = await open();
  const keys = new InternalKeys();
  keys.update([freshKey(Date.now())]);
  assert.equal(await send(stranger.server.port, keys.newest, [head()]), 'refused');
});

// SEC-45
test('a request for another member, without a head, or sent twice, is refused', OPTIONS, async () => {
  await using opened = await open();
  const { server, keys, handled, refused } = opened;
  const call = randomUUID();
  const [sender, forwarded] = head();
  const cases = [
    [head({ to: 'member-2' }), 410],
    [['', ''], 400],
    [['x', forwarded], 400],
    [[sender, 'x'], 400],
    [head({ call }), 200],
    [head({ call }), 409],
  ] as const;
  const statuses = cases.map(([, status]) => status);
  const requests = cases.map(([texts]) => texts);
  assert.deepEqual(await send(server.port, keys.newest, requests), statuses);
  assert.deepEqual(await send(server.port, keys.newest, [head({ call })]), [409], 'on another connection');
  assert.equal(handled.length, 1);
  assert.deepEqual(refused, ['misdirected', 'envelope', 'envelope', 'envelope', 'repeated', 'repeated']);
});

test('a replica that exceeds a window, or uses a number twice, is disconnected', OPTIONS, async () => {
  await using opened = await open();
  const { server, keys, handled } = opened;
  const begin = requestFrame(1, false, ...head({ target: '/unread' }));
  const piece = dataFrame(1, false, Buffer.alloc(65_536));
  const whole = requestFrame(1, true, ...head({ target: '/unread' }));
  const broken = [[begin, piece, piece, piece], [whole, whole], [Buffer.alloc(10, 0xff)]];
  for (const frames of broken) {
    const socket = connectTls(server.port, keys.newest);
    await once(socket, 'secureConnect');
    socket.resume();
    socket.write(Buffer.concat(frames));
    await once(socket, 'close');
  }
  assert.equal(handled.length, 2);
});

// SEC-45
test('recorded bytes of a connection do nothing when they are sent again, or changed', OPTIONS, async () => {
  await using opened = await open();
  const { server, keys, handled } = opened;
  await using relay = await TcpRelay.open(server.port);
  const recorded: Buffer[] = [];
  relay.onClientBytes = (bytes) => void recorded.push(bytes);
  assert.deepEqual(await send(relay.port, keys.newest, [head()]), [200]);
  assert.ok(recorded.length > 1);
  const all = Buffer.concat(recorded);
  for (let n = -1; n < 63; n++) {
    const bytes = Buffer.from(all);
    const at = Math.floor((bytes.length * n) / 63);
    if (n >= 0) bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << (n % 8)), at);
    const socket = connectPlain(server.port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.end(bytes);
    socket.resume();
    await once(socket, 'close');
  }
  assert.equal(handled.length, 1);
});

// SEC-30
test('after a rotation both keys connect, and after the grace period only the new one', OPTIONS, async () => {
  const [old] = [freshKey(Date.now())];
  const keys = new InternalKeys();
  keys.update([old]);
  const before = keys.newest;
  assert.equal(keys.update(withFreshKey([old], Date.now(), 60_000)), true);
  const after = keys.newest;
  assert.notEqual(after.id, before.id);
  for (const { id, key } of [before, after]) assert.deepEqual(keys.find(id, Date.now()), key);
  assert.equal(keys.find(before.id, Date.now() + 61_000), undefined);
  const tried = [0, 61_000].map((ms) => keys.toConnect(Date.now() + ms).map(({ id }) => id));
  assert.deepEqual(tried, [[after.id, before.id], [after.id]]);
  assert.equal(keys.update([freshKey(Date.now())]), false, 'a ring without a common key has replaced it');
  assert.equal(keys.find(after.id, Date.now()), undefined);
});

test('a connection that does not finish its handshake is closed', { timeout: 120_000 }, async () => {
  await using opened = await open();
  const socket = connectPlain(opened.server.port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.resume();
  await once(socket, 'close');
  const tls = connect({ host: '127.0.0.1', port: opened.server.port, rejectUnauthorized: false });
  await assert.rejects(once(tls, 'secureConnect'));
});

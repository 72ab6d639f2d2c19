import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Notification, Request } from '../../../src/protocol/jsonrpc.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import type { ServerRequest } from '../../../src/upstream/rpc/connection.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { NoEventStreamError } from '../../../src/upstream/rpc/no-event-stream-error.ts';
import { type LinkRequest, Opener } from '../../../src/upstream/link/opener.ts';
import type { StartTransport, TransportOption } from '../../../src/upstream/rpc/transport.ts';
import { memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { NO_LINK_EVENTS } from '../../support/link-events.ts';
import { errorText } from '../../support/http-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const ORDER: LinkRequest = {
  clientEra: 'legacy',
  audience: '',
  clientCapabilities: RawObject.EMPTY,
  capabilityKey: '',
  placeIn: () => ({ key: 'a', purpose: 'clients' }),
};

function opener(...transports: StartTransport[]): Opener<string> {
  return openerIn('legacy', ...transports);
}

const reached: string[] = [];

function openerIn(era: TransportOption['era'], ...transports: StartTransport[]): Opener<string> {
  return new Opener<string>({
    upstream: 'up',
    transports: transports.map((start) => ({ era, isProcess: false, hasCallStreams: true, start })),
    clientInfo: RawObject.EMPTY,
    timeouts: () => ({ startMs: PATIENCE_MS, callMs: PATIENCE_MS }),
    log: pino({ level: 'silent' }),
    onLimit: (limit) => reached.push(limit),
  });
}

/** Returns a transport that fails like a server of 2024-11-05 on a POST to the URL of its stream. */
function notStreamable(): StartTransport {
  return async () => {
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('upstream-unavailable', { message: 'HTTP 405' }, new HttpStatusError(405));
  };
}

const signal = () => AbortSignal.timeout(PATIENCE_MS);

test('a server that does not support the first transport is reached by the second', async () => {
  const memory = memoryUpstream({});
  const link = await opener(notStreamable(), memory.start).open(ORDER, NO_LINK_EVENTS, signal());
  assert.equal(link.hello.revision, '2025-11-25');
  await link.connection.close();
});

const NO_STREAM = [
  { what: 'a status', cause: new HttpStatusError(405) },
  { what: 'something that is no event stream', cause: new NoEventStreamError('HTTP 200') },
];

for (const { what, cause } of NO_STREAM) {
  test(`the reason of a failed POST stays if the GET is answered by ${what}`, async () => {
    const failing = (message: string, thrown: Error) => (): never => {
      throw new GatewayError('upstream-unavailable', { message }, thrown);
    };
    const post = failing('answered HTTP 400: missing x-api-key', new HttpStatusError(400));
    const get = failing('answered the GET', cause);
    const opening = opener(
      async () => post(),
      async () => get(),
    ).open(ORDER, NO_LINK_EVENTS, signal());
    await assert.rejects(opening, { message: /missing x-api-key/ });
  });
}

test('a transport that has worked is tried first afterwards', async () => {
  let tries = 0;
  const first: StartTransport = (events, aborted, request) => {
    tries++;
    return notStreamable()(events, aborted, request);
  };
  const memory = memoryUpstream({});
  const links = opener(first, memory.start);
  for (let n = 0; n < 3; n++) await (await links.open(ORDER, NO_LINK_EVENTS, signal())).connection.close();
  assert.equal(tries, 1);
});

// R4
test('a server that has moved to the transport after the one that worked is found', async () => {
  let isMoved = false;
  const memory = memoryUpstream({});
  const first: StartTransport = (...to) => (isMoved ? notStreamable()(...to) : memory.start(...to));
  const links = opener(first, memory.start);
  await (await links.open(ORDER, NO_LINK_EVENTS, signal())).connection.close();
  isMoved = true;
  await (await links.open(ORDER, NO_LINK_EVENTS, signal())).connection.close();
  assert.equal(memory.peers.length, 2);
});

// R4
test('a server that has moved to the transport before the one that worked is found', async () => {
  let isMoved = false;
  const memory = memoryUpstream({});
  const hangs: StartTransport = () => Promise.reject(new GatewayError('upstream-unavailable', { message: 'silent' }));
  const links = opener(
    (...to) => (isMoved ? memory.start(...to) : notStreamable()(...to)),
    (...to) => (isMoved ? hangs(...to) : memory.start(...to)),
  );
  await (await links.open(ORDER, NO_LINK_EVENTS, signal())).connection.close();
  isMoved = true;
  await assert.rejects(links.open(ORDER, NO_LINK_EVENTS, signal()), { code: 'upstream-unavailable' });
  await (await links.open(ORDER, NO_LINK_EVENTS, signal())).connection.close();
  assert.equal(memory.peers.length, 2);
});

test('simultaneous links all reach a server that supports only the second transport', async () => {
  const memory = memoryUpstream({});
  const links = opener(notStreamable(), memory.start);
  const opened = await Promise.allSettled([1, 2, 3, 4].map(() => links.open(ORDER, NO_LINK_EVENTS, signal())));
  assert.deepEqual(
    opened.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'fulfilled', 'fulfilled'],
  );
  for (const one of opened) if (one.status === 'fulfilled') await one.value.connection.close();
});

test('after a failure that is not about the transport, no other is tried', async () => {
  const memory = memoryUpstream({});
  const broken: StartTransport = () => Promise.reject(new GatewayError('upstream-unavailable', { message: 'refused' }));
  await assert.rejects(opener(broken, memory.start).open(ORDER, NO_LINK_EVENTS, signal()), {
    code: 'upstream-unavailable',
  });
  assert.equal(memory.peers.length, 0);
});

test('a link that cannot be opened leaves no connection', async () => {
  const memory = memoryUpstream({ revision: '1999-01-01' });
  await assert.rejects(opener(memory.start).open(ORDER, NO_LINK_EVENTS, signal()), { code: 'upstream-protocol' });
  assert.equal(memory.open.size, 0);
});

test('credentials that are refused during a probe fail their audience alone', async () => {
  const start: StartTransport = async (_events, _signal, { audience }) => {
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('upstream-unavailable', { message: `refused ${audience}` }, new HttpStatusError(401));
  };
  const links = openerIn('either', start);
  const open = (audience: string) => links.open({ ...ORDER, clientEra: 'modern', audience }, NO_LINK_EVENTS, signal());
  const opened = await Promise.allSettled(['mallory', 'anna', 'bert', 'mallory'].map(open));
  assert.deepEqual(
    opened.map((one) => (one.status === 'rejected' ? String(one.reason).split(': ').at(-1) : undefined)),
    ['refused mallory', 'refused anna', 'refused bert', 'refused mallory'],
  );
});

/** A server that says this before it answers `initialize`. */
function sending(send: (peer: Peer) => void) {
  return memoryUpstream({
    isRaw: true,
    request: (peer, request) => {
      if (request.method !== 'initialize') return;
      send(peer);
      const serverInfo = { name: 'early', version: '1' };
      peer.send(result(request, { protocolVersion: '2025-11-25', capabilities: {}, serverInfo }));
    },
  });
}

test('limit earlyMessages: further notifications are dropped, and requests refused', async () => {
  const memory = sending((peer) => {
    for (let n = 0; n <= LIMITS.earlyMessages; n++)
      peer.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":${n}}}`);
    peer.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
  });
  const got: (string | undefined)[] = [];
  const asked: string[] = [];
  const events = {
    ...NO_LINK_EVENTS,
    onNotification: (_link: unknown, { params }: Notification) => got.push(params?.raw('data')),
    onServerRequest: (_link: unknown, { method }: { readonly method: string }) => asked.push(method),
  };
  const from = reached.length;
  const link = await opener(memory.start).open(ORDER, events, signal());
  assert.deepEqual(
    got,
    Array.from({ length: LIMITS.earlyMessages }, (_, n) => String(n)),
  );
  assert.deepEqual(asked, []);
  const refusal = await memory.until(() => memory.peers[0]?.received.find((one) => 'id' in one && one.id === '"q"'));
  assert.equal(refusal.kind === 'error' && refusal.error.code, -32_603);
  assert.deepEqual(reached.slice(from), ['earlyMessages', 'earlyMessages']);
  // Later messages are not counted.
  memory.peers[0]?.send('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"late"}}');
  assert.equal(got.at(-1), '"late"');
  await link.connection.close();
});

test('a request that the server cancels before the end of its handshake is dropped', async () => {
  const memory = sending((peer) => {
    for (const id of [1, 2]) peer.send(`{"jsonrpc":"2.0","id":${id},"method":"roots/list","params":{"n":${id}}}`);
    peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}');
  });
  const asked: (string | undefined)[] = [];
  const onServerRequest = (_link: unknown, { params }: ServerRequest<string>) => asked.push(params.raw('n'));
  const link = await opener(memory.start).open(ORDER, { ...NO_LINK_EVENTS, onServerRequest }, signal());
  assert.deepEqual(asked, ['2']);
  await link.connection.close();
});

test('limit earlyMessageBytes: large messages during the handshake are dropped', async () => {
  const text = 'x'.repeat(LIMITS.earlyMessageBytes / 5);
  const memory = sending((peer) => {
    for (let n = 0; n < 10; n++)
      peer.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"${text}"}}`);
  });
  let count = 0;
  const from = reached.length;
  const link = await opener(memory.start).open(ORDER, { ...NO_LINK_EVENTS, onNotification: () => count++ }, signal());
  assert.equal(count, 2);
  assert.deepEqual(
    reached.slice(from),
    Array.from({ length: 8 }, () => 'earlyMessageBytes'),
  );
  await link.connection.close();
});

const HELLO = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'scripted', version: '1' } };
const DISCOVERED = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: {} };
const refusal = ({ id }: Request, code: number, message: string) => errorText(Number(id), { code, message });

// L-010
test('a start after one that failed with an older revision begins with the latest', async () => {
  let isBroken = true;
  const memory = memoryUpstream({
    isRaw: true,
    request: (peer, request) => {
      if (!isBroken) return peer.send(result(request, HELLO));
      if (request.params?.string('protocolVersion') !== '2025-11-25') return peer.crash('out of order');
      peer.send(refusal(request, RPC.invalidParams, 'Unsupported protocol version, try 2025-06-18'));
    },
  });
  const links = opener(memory.start);
  await assert.rejects(links.open(ORDER, NO_LINK_EVENTS, signal()), /out of order/);
  isBroken = false;
  const link = await links.open(ORDER, NO_LINK_EVENTS, signal());
  const proposed = memory.requests('initialize').map(({ params }) => params?.string('protocolVersion'));
  assert.deepEqual(proposed, ['2025-11-25', '2025-06-18', '2025-06-18', '2025-11-25']);
  await link.connection.close();
});

// L-009
test('a program with an internal error to server/discover is probed a minute later', async (t) => {
  const time = stopTime(t);
  let isBroken = true;
  const memory = memoryUpstream({
    isRaw: true,
    request: (peer, request) => {
      if (request.method === 'initialize') return peer.send(result(request, HELLO));
      peer.send(isBroken ? refusal(request, RPC.internalError, 'no') : result(request, DISCOVERED));
    },
  });
  const links = openerIn('either', memory.start);
  const order = { ...ORDER, clientEra: 'modern' } as const;
  const before = await links.open(order, NO_LINK_EVENTS, signal());
  assert.equal(before.hello.revision, '2025-11-25');
  isBroken = false;
  time.pass(60_001);
  const after = await links.open(order, NO_LINK_EVENTS, signal());
  assert.equal(after.hello.revision, '2026-07-28');
  for (const { connection, subscription } of [before, after]) {
    subscription?.close();
    await connection.close();
  }
});

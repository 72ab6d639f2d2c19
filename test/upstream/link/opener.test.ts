import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { LinkUser } from '../../../src/upstream/link/link.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { type LinkRequest, Opener } from '../../../src/upstream/link/opener.ts';
import type { StartTransport, TransportOption } from '../../../src/upstream/rpc/transport.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const EVENTS = {
  onOpen: () => undefined,
  onNotification: () => undefined,
  onServerRequest: () => undefined,
  onClose: () => undefined,
};
const ORDER: LinkRequest = {
  clientEra: 'legacy',
  audience: '',
  clientCapabilities: RawObject.EMPTY,
  capabilityKey: '',
  placeIn: () => ({ key: 'a', shared: false }),
};

function opener(...transports: StartTransport[]): Opener<string, LinkUser> {
  return openerIn('legacy', ...transports);
}

function openerIn(era: TransportOption['era'], ...transports: StartTransport[]): Opener<string, LinkUser> {
  return new Opener<string, LinkUser>({
    upstream: 'up',
    transports: transports.map((start) => ({ era, isProcess: false, hasCallStreams: true, start })),
    clientInfo: RawObject.EMPTY,
    timeouts: () => ({ startMs: 2_000, callMs: 2_000 }),
    log: pino({ level: 'silent' }),
  });
}

/** Returns a transport that fails like a server of 2024-11-05 on a POST to the URL of its stream. */
function notStreamable(): StartTransport {
  return async () => {
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('upstream-unavailable', { message: 'HTTP 405' }, new HttpStatusError(405));
  };
}

const signal = () => AbortSignal.timeout(5_000);

test('a server that does not support the first transport is reached by the second', async () => {
  const memory = memoryUpstream({});
  const link = await opener(notStreamable(), memory.start).open(ORDER, EVENTS, signal());
  assert.equal(link.hello.revision, '2025-11-25');
  await link.connection.close();
});

test('a transport that has worked is tried first afterwards', async () => {
  let tries = 0;
  const first: StartTransport = (events, aborted, request) => {
    tries++;
    return notStreamable()(events, aborted, request);
  };
  const memory = memoryUpstream({});
  const links = opener(first, memory.start);
  for (let n = 0; n < 3; n++) await (await links.open(ORDER, EVENTS, signal())).connection.close();
  assert.equal(tries, 1);
});

test('simultaneous links all reach a server that supports only the second transport', async () => {
  const memory = memoryUpstream({});
  const links = opener(notStreamable(), memory.start);
  const opened = await Promise.allSettled([1, 2, 3, 4].map(() => links.open(ORDER, EVENTS, signal())));
  assert.deepEqual(
    opened.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'fulfilled', 'fulfilled'],
  );
  for (const one of opened) if (one.status === 'fulfilled') await one.value.connection.close();
});

test('after a failure that is not about the transport, no other is tried', async () => {
  const memory = memoryUpstream({});
  const broken: StartTransport = () => Promise.reject(new GatewayError('upstream-unavailable', { message: 'refused' }));
  await assert.rejects(opener(broken, memory.start).open(ORDER, EVENTS, signal()), { code: 'upstream-unavailable' });
  assert.equal(memory.peers.length, 0);
});

test('a link that cannot be opened leaves no connection', async () => {
  const memory = memoryUpstream({ revision: '1999-01-01' });
  await assert.rejects(opener(memory.start).open(ORDER, EVENTS, signal()), { code: 'upstream-protocol' });
  assert.equal(memory.open.size, 0);
});

test('credentials that are refused during a probe fail their audience alone', async () => {
  const start: StartTransport = async (_events, _signal, { audience }) => {
    await new Promise((resolve) => setImmediate(resolve));
    throw new GatewayError('upstream-unavailable', { message: `refused ${audience}` }, new HttpStatusError(401));
  };
  const links = openerIn('either', start);
  const open = (audience: string) => links.open({ ...ORDER, clientEra: 'modern', audience }, EVENTS, signal());
  const opened = await Promise.allSettled(['mallory', 'anna', 'bert', 'mallory'].map(open));
  assert.deepEqual(
    opened.map((one) => (one.status === 'rejected' ? String(one.reason).split(': ').at(-1) : undefined)),
    ['refused mallory', 'refused anna', 'refused bert', 'refused mallory'],
  );
});

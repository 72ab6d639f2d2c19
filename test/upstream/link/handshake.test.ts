import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ERRORS } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { META } from '../../../src/protocol/meta.ts';
import { LATEST_LEGACY } from '../../../src/protocol/revisions.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { type Eras, erasOver, type HandshakePlan, recordFinding } from '../../../src/upstream/link/eras.ts';
import { handshake, type HandshakeOutcome, modernOnly } from '../../../src/upstream/link/handshake.ts';
import { Proposals } from '../../../src/upstream/link/proposals.ts';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import type { StartTransport } from '../../../src/upstream/rpc/transport.ts';
import { errorText } from '../../support/http-upstream.ts';
import { memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { type StoppedTime, stopTime } from '../../support/stopped-time.ts';

const START_MS = PATIENCE_MS;
const OPTIONS = { timeoutMs: START_MS, maxMs: START_MS, progress: false, context: undefined };
const UNKNOWN = erasOver(new Set(['legacy', 'modern']));
const KNOWN_LEGACY = recordFinding(UNKNOWN, { era: 'legacy', speaks: 'yes', evidence: 'worked' }, 0);
const KNOWN_MODERN = recordFinding(UNKNOWN, { era: 'modern', speaks: 'yes', evidence: 'worked' }, 0);

type Method = 'initialize' | 'server/discover';
type Reply = (peer: Peer, request: Request) => void;

const discovers: Reply = (peer, request) => {
  const hello = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: {} };
  peer.send(result(request, hello));
};
const initializes: Reply = (peer, request) => {
  const serverInfo = { name: 'scripted', version: '1' };
  peer.send(result(request, { protocolVersion: '2025-11-25', capabilities: {}, serverInfo }));
};
const refuses =
  (code: number, data?: object, why = 'no'): Reply =>
  (peer, { id, method }) =>
    peer.send(errorText(Number(id), { code, message: `${why} ${method}`, data }));
const ends: Reply = (peer) => peer.crash('exit code 1');
const both =
  (first: Reply, second: Reply): Reply =>
  (peer, request) => {
    first(peer, request);
    second(peer, request);
  };
/** Only a server of the modern era refuses like this. */
const refusesRevision = refuses(RPC.unsupportedVersion, { supported: ['2026-07-28'] });

interface Server {
  readonly connection: Connection<undefined>;
  /** Sends a byte that is not part of a message. */
  sendByte(): void;
  /** Resolves when the server has got this handshake. */
  gets(method: Method): Promise<Request>;
  /** Resolves with the methods that were sent until now. */
  methods(): Promise<readonly string[]>;
  /** Replies to a handshake that the script has left open. Resolves when the reply was read. */
  reply(method: Method, how: Reply): Promise<void>;
  /** Resolves with the era of a request on the connection. */
  eraOfRequests(): Promise<string>;
  handshake(
    plan: HandshakePlan,
    options?: { readonly eras?: Eras; readonly startMs?: number },
  ): Promise<HandshakeOutcome>;
}

/** Connects to a server that replies to some of the handshakes, and is silent about the others. */
async function connect(replies: Partial<Record<Method, Reply>> = {}): Promise<Server> {
  const reply = new Map<string, Reply>(Object.entries(replies));
  const memory = memoryUpstream({ isRaw: true, request: (peer, one) => reply.get(one.method)?.(peer, one) });
  let sendByte = () => {};
  const start: StartTransport = (events, signal, request) => {
    sendByte = () => events.onFirstByte?.();
    return memory.start(events, signal, request);
  };
  const ignore = () => undefined;
  const events = { onNotification: ignore, onServerRequest: ignore, onClose: ignore };
  const connection = await Connection.open<undefined>('up', start, events, new AbortController().signal, {
    audience: '',
  });
  const [peer] = memory.peers;
  assert.ok(peer !== undefined);
  const gets = (method: string) => memory.until(() => memory.requests(method)[0]);
  let marks = 0;
  return {
    connection,
    sendByte,
    gets,
    methods: async () => {
      await nextTurn();
      // Messages arrive in the order in which they were sent.
      const mark = `mark ${++marks}`;
      connection.notify(mark);
      const sent = () => peer.received.map((one) => ('method' in one ? one.method : one.kind));
      await memory.until(() => sent().find((method) => method === mark));
      return sent().filter((method) => method === 'initialize' || method === 'server/discover');
    },
    reply: async (method, how) => {
      how(peer, await gets(method));
      await nextTurn();
    },
    eraOfRequests: async () => {
      await connection.call('tools/list', undefined, OPTIONS).answer;
      const [request] = memory.requests('tools/list');
      return request?.params?.object('_meta')?.raw(META.protocolVersion) === undefined ? 'legacy' : 'modern';
    },
    handshake: (plan, { eras = UNKNOWN, startMs = START_MS } = {}) =>
      handshake(partsOf(connection, eras, startMs), plan),
  };
}

function partsOf(connection: Connection<undefined>, eras: Eras, startMs: number) {
  const clientInfo = RawObject.of({ name: 'linkspan', version: '1' });
  return {
    connection,
    clientInfo,
    clientCapabilities: RawObject.EMPTY,
    eras,
    startMs,
    proposals: new Proposals(LATEST_LEGACY),
  };
}

/** Returns what an outcome says: the kind, the findings, the plan for another connection, and the reason for that. */
function read(outcome: HandshakeOutcome) {
  const findings = outcome.findings.map(({ era, speaks }) => `${era} ${speaks}`);
  if (outcome.kind === 'open') return { kind: outcome.kind, revision: outcome.hello.revision, findings };
  return { kind: outcome.kind, findings, next: outcome.next, reason: String(outcome.reason.detail.message) };
}

for (const { name, plan, eras, replies, sent, outcome } of [
  {
    name: 'a server that refuses initialize is asked for the modern era at once',
    plan: ['legacy', 'modern'],
    replies: { initialize: refuses(RPC.methodNotFound), 'server/discover': discovers },
    sent: ['initialize', 'server/discover'],
    outcome: { kind: 'open', revision: '2026-07-28', findings: ['modern yes', 'legacy no'] },
  },
  {
    name: 'a server that refuses each older revision with a code of its own may be modern',
    plan: ['legacy', 'modern'],
    replies: { initialize: refuses(1, undefined, 'unsupported version in'), 'server/discover': discovers },
    sent: ['initialize', 'initialize', 'initialize', 'initialize', 'server/discover'],
    outcome: { kind: 'open', revision: '2026-07-28', findings: ['modern yes', 'legacy no'] },
  },
  {
    name: 'a server may say that it does not have initialize with an internal error',
    plan: ['legacy', 'modern'],
    replies: { initialize: refuses(RPC.internalError, undefined, 'unknown method'), 'server/discover': discovers },
    sent: ['initialize', 'server/discover'],
    outcome: { kind: 'open', revision: '2026-07-28', findings: ['modern yes', 'legacy no'] },
  },
  {
    name: 'a server that ends after it refused initialize may be modern on a new connection',
    plan: ['legacy', 'modern'],
    replies: { initialize: both(refuses(RPC.methodNotFound), ends) },
    sent: ['initialize'],
    outcome: {
      kind: 'unsuitable',
      findings: ['legacy no'],
      next: ['modern'],
      reason: 'upstream "up" refused initialize: no initialize',
    },
  },
  {
    name: 'a modern refusal of server/discover is the reason, and not that of initialize',
    plan: ['legacy', 'modern'],
    replies: { initialize: refuses(RPC.methodNotFound), 'server/discover': refuses(RPC.missingCapability) },
    sent: ['initialize', 'server/discover'],
    outcome: {
      kind: 'unsuitable',
      findings: ['legacy no'],
      next: undefined,
      reason: 'upstream "up" refused server/discover: no server/discover',
    },
  },
  {
    name: 'a server that ends on server/discover is legacy on a new connection',
    plan: ['modern', 'legacy'],
    replies: { 'server/discover': ends },
    sent: ['server/discover'],
    outcome: { kind: 'unsuitable', findings: ['modern no'], next: ['legacy'], reason: 'exit code 1' },
  },
  {
    name: 'a server that refuses both handshakes proves nothing about either era',
    plan: ['modern', 'legacy'],
    replies: { initialize: refuses(RPC.methodNotFound), 'server/discover': refuses(RPC.methodNotFound) },
    sent: ['server/discover', 'initialize'],
    outcome: {
      kind: 'unsuitable',
      findings: [],
      next: undefined,
      reason: 'upstream "up" refused initialize: no initialize',
    },
  },
  {
    name: 'a server with a modern error is legacy if that era has worked before',
    plan: ['modern', 'legacy'],
    eras: KNOWN_LEGACY,
    replies: { initialize: initializes, 'server/discover': refuses(RPC.missingCapability) },
    sent: ['server/discover', 'initialize'],
    outcome: { kind: 'open', revision: '2025-11-25', findings: ['legacy yes', 'modern no'] },
  },
  {
    name: 'a server that must be modern and is not gets no initialize',
    plan: ['modern'],
    replies: { initialize: initializes, 'server/discover': refuses(RPC.methodNotFound) },
    sent: ['server/discover'],
    outcome: {
      kind: 'unsuitable',
      findings: ['modern no'],
      next: undefined,
      reason: 'upstream "up" does not support revision 2026-07-28',
    },
  },
] as const) {
  test(name, async () => {
    const server = await connect(replies);
    const found = await server.handshake(plan, eras === undefined ? {} : { eras });
    assert.deepEqual(read(found), outcome);
    if (!server.connection.isClosed) assert.deepEqual(await server.methods(), sent);
    if (found.kind === 'open') {
      assert.equal(await server.eraOfRequests(), found.findings[0]?.era);
    }
  });
}

// L-009
for (const code of [RPC.internalError, ERRORS.overloaded.rpc, 1]) {
  test(`an error ${code} to initialize is a failed start, and sends no server/discover`, async () => {
    const server = await connect({ initialize: refuses(code), 'server/discover': discovers });
    await assert.rejects(server.handshake(['legacy', 'modern']), /refused initialize: no initialize/);
    assert.deepEqual(await server.methods(), ['initialize']);
  });
}

const repeats: Reply = (peer, { id }) =>
  peer.send(`{"jsonrpc":"2.0","id":${id},"result":{"protocolVersion":"2025-11-25","capabilities":{"a":1,"a":1}}}`);

test('an answer to initialize that cannot be read is an error of the upstream', async () => {
  const server = await connect({ initialize: repeats });
  const message = /answered initialize with a result that cannot be read$/;
  await assert.rejects(server.handshake(['legacy']), { code: 'upstream-protocol', message });
});

test('an answer to initialize that cannot be read leaves a late one to server/discover', async (t) => {
  const { outcome } = await race(stopTime(t), [
    ['initialize', repeats],
    ['server/discover', discovers],
  ]);
  assert.deepEqual(outcome, { kind: 'open', revision: '2026-07-28', findings: ['modern yes'] });
});

test('a program that refuses a handshake and ends gets the other on a new connection', async () => {
  const refused = refuses(RPC.methodNotFound);
  for (const { plan, first, second, findings } of [
    { plan: ['modern', 'legacy'], first: 'server/discover', second: 'initialize', findings: ['modern no'] },
    { plan: ['legacy', 'modern'], first: 'initialize', second: 'server/discover', findings: ['legacy no'] },
  ] as const) {
    const server = await connect({ [first]: refused });
    const opening = server.handshake(plan);
    await server.reply(second, ends);
    const { kind, next, findings: found } = { next: undefined, ...(await opening) };
    assert.deepEqual(
      [kind, next, found.map(({ era, speaks }) => `${era} ${speaks}`)],
      ['unsuitable', [plan[1]], findings],
    );
  }
});

test('a modern server that is silent after a refused initialize gets a new connection', async (t) => {
  const time = stopTime(t);
  const server = await connect({ initialize: refusesRevision });
  const found = await time.passUntil(server.handshake(['legacy', 'modern']), START_MS / 4);
  assert.deepEqual(read(found), {
    kind: 'unsuitable',
    findings: ['legacy no'],
    next: ['modern'],
    reason: 'upstream "up" refused initialize: no initialize (it supports 2026-07-28)',
  });
});

test('a known modern server gets no initialize while it is silent', async (t) => {
  const time = stopTime(t);
  const server = await connect();
  const opening = server.handshake(['modern', 'legacy'], { eras: KNOWN_MODERN });
  await server.gets('server/discover');
  time.pass(START_MS - 1);
  assert.deepEqual(await server.methods(), ['server/discover']);
  await server.reply('server/discover', discovers);
  assert.deepEqual(read(await opening), { kind: 'open', revision: '2026-07-28', findings: ['modern yes'] });
});

test('a silent modern transport is given up after the patience of its caller', async (t) => {
  const time = stopTime(t);
  const server = await connect();
  const opening = modernOnly(partsOf(server.connection, UNKNOWN, START_MS), START_MS / 2);
  await server.gets('server/discover');
  time.pass(START_MS / 2);
  const found = await opening;
  assert.deepEqual(found.findings, [
    { era: 'modern', speaks: 'no', evidence: 'server/discover not answered', isDoubtful: true },
  ]);
  assert.equal(found.kind === 'unsuitable' && found.reason.code, 'upstream-timeout');
});

test('a silent program gets initialize after 5 s, and 2 s after its first byte', async (t) => {
  const time = stopTime(t);
  for (const { startMs, sendsByte, afterMs } of [
    { startMs: START_MS, sendsByte: false, afterMs: 5_000 },
    { startMs: START_MS, sendsByte: true, afterMs: 2_000 },
    // Half of the time to start is left for initialize.
    { startMs: 3_000, sendsByte: false, afterMs: 1_500 },
  ]) {
    const server = await connect({ initialize: initializes });
    const opening = server.handshake(['modern', 'legacy'], { startMs });
    await server.gets('server/discover');
    if (sendsByte) server.sendByte();
    await nextTurn();
    time.pass(afterMs - 1);
    assert.deepEqual(await server.methods(), ['server/discover']);
    time.pass(1);
    assert.equal((await server.gets('initialize')).params?.raw('_meta'), undefined);
    const silent = { kind: 'open', revision: '2025-11-25', findings: ['legacy yes', 'modern no'] };
    assert.deepEqual(read(await opening), silent);
  }
});

/** Has both handshakes in flight, at a program that has answered neither. Gives it the replies one after another. */
async function race(time: StoppedTime, replies: readonly (readonly [Method, Reply])[], thenMs = 0) {
  const server = await connect();
  const opening = server.handshake(['modern', 'legacy']);
  await server.gets('server/discover');
  time.pass(5_000);
  await server.gets('initialize');
  for (const [method, how] of replies) await server.reply(method, how);
  time.pass(thenMs);
  return { server, outcome: read(await opening) };
}

test('a late answer to server/discover counts if initialize is refused', async (t) => {
  const time = stopTime(t);
  const answered = ['server/discover', discovers] as const;
  const refused = ['initialize', refuses(RPC.methodNotFound)] as const;
  for (const replies of [
    [answered, refused],
    [refused, answered],
  ]) {
    const { server, outcome } = await race(time, replies);
    assert.deepEqual(outcome, { kind: 'open', revision: '2026-07-28', findings: ['modern yes'] });
    assert.equal(await server.eraOfRequests(), 'modern');
  }
});

test('a modern program that may have begun a legacy session is started again', async (t) => {
  const time = stopTime(t);
  const [discovered, initialized] = [['server/discover', discovers] as const, ['initialize', initializes] as const];
  const reason = 'upstream "up" got both handshakes';
  const restart = { kind: 'unsuitable', findings: ['modern yes'], next: ['modern'], reason };
  assert.deepEqual((await race(time, [discovered, initialized])).outcome, restart);
  assert.deepEqual((await race(time, [discovered], 2_000)).outcome, restart);
});

test('a program that ends while it has both handshakes is legacy on a new connection', async (t) => {
  const time = stopTime(t);
  const refusesAndEnds = both(refuses(RPC.methodNotFound), ends);
  const refused = 'upstream "up" refused initialize: no initialize';
  for (const [replies, reason] of [
    [[['initialize', ends]], 'exit code 1'],
    [[['initialize', refusesAndEnds]], refused],
    // The gateway reads the refusal before it learns of the end.
    [
      [
        ['initialize', refuses(RPC.methodNotFound)],
        ['server/discover', ends],
      ],
      refused,
    ],
  ] as const) {
    const { outcome } = await race(time, replies);
    assert.deepEqual(outcome, { kind: 'unsuitable', findings: ['modern no'], next: ['legacy'], reason });
  }
});

test('without a late answer to server/discover, the answer to initialize decides', async (t) => {
  const time = stopTime(t);
  for (const [name, how, findings] of [
    ['refused', refuses(RPC.methodNotFound), ['legacy yes', 'modern no']],
    ['refused once, so that it is sent again', refusesRevision, ['legacy yes', 'modern no']],
  ] as const) {
    const { server, outcome } = await race(time, [
      ['server/discover', how],
      ['initialize', initializes],
    ]);
    assert.deepEqual(outcome, { kind: 'open', revision: '2025-11-25', findings }, name);
    assert.equal(await server.eraOfRequests(), 'legacy', name);
  }
});

test('a refusal of both handshakes in flight says nothing about the eras', async (t) => {
  const { outcome } = await race(stopTime(t), [
    ['initialize', refuses(RPC.internalError)],
    ['server/discover', refuses(RPC.methodNotFound)],
  ]);
  const reason = 'upstream "up" refused initialize: no initialize';
  assert.deepEqual(outcome, { kind: 'unsuitable', findings: [], next: undefined, reason });
});

test('a program is started again after 2 s if its refusal proves that it is modern', async (t) => {
  const { outcome } = await race(stopTime(t), [['initialize', refusesRevision]], 2_000);
  const reason = 'upstream "up" refused initialize: no initialize (it supports 2026-07-28)';
  assert.deepEqual(outcome, { kind: 'unsuitable', findings: ['modern yes'], next: ['modern'], reason });
});

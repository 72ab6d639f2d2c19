import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { upstreamTransports } from '../../../src/compose/transports.ts';
import type { HttpTarget, StdioTarget, UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { META } from '../../../src/protocol/meta.ts';
import type { Era } from '../../../src/protocol/revisions.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { type LinkRequest, Opener } from '../../../src/upstream/link/opener.ts';
import type { Connection } from '../../../src/upstream/rpc/connection.ts';
import { configWith } from '../../downstream/edge.ts';
import { json, type Received, serve, type Upstream } from '../../fixtures/servers/http-harness.ts';
import { UPSTREAM } from '../../support/core.ts';
import { errorText, resultText } from '../../support/http-upstream.ts';
import { marker } from '../../support/leftovers.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { NO_LINK_EVENTS } from '../../support/link-events.ts';

const TIMEOUT = { timeout: 120_000 };
const LOG = pino({ level: 'silent' });
const orderOf = (clientEra: Era): LinkRequest => ({
  clientEra,
  audience: '',
  clientCapabilities: RawObject.EMPTY,
  capabilityKey: '',
  placeIn: () => ({ key: 'a', purpose: 'clients' }),
});

const START_MS = 60_000;

const UP: UpstreamConfig = {
  ...UPSTREAM,
  id: 'up',
  title: 'up',
  prefix: 'up__',
  era: 'auto',
  timeouts: {
    startMs: START_MS,
    connectMs: START_MS,
    firstByteMs: START_MS,
    callMs: START_MS,
    toolMs: START_MS,
    maxMs: START_MS,
  },
};

interface Opened {
  readonly revision: string;
  readonly instructions: string | undefined;
  readonly capabilities: readonly string[];
  readonly serverInfo: readonly string[];
}

/** Opens links over all transports, as the gateway does. */
async function prober(
  target: HttpTarget | StdioTarget,
  clientEra: Era = 'modern',
): Promise<
  AsyncDisposable & {
    readonly limits: readonly string[];
    open(use?: (connection: Connection<string>) => Promise<void>): Promise<Opened>;
  }
> {
  const config = configWith({});
  const limits: string[] = [];
  const reach = await upstreamTransports(config, createMetrics('0'), LOG);
  const opener = new Opener<string>({
    upstream: 'up',
    transports: reach.transportTo({ ...UP, target }, config.limits).options,
    clientInfo: RawObject.of({ name: 'linkspan', version: '1' }),
    timeouts: () => ({ startMs: START_MS, callMs: START_MS }),
    log: LOG,
    onLimit: (limit) => void limits.push(limit),
  });
  return {
    limits,
    open: async (use) => {
      const { connection, hello, subscription } = await opener.open(
        orderOf(clientEra),
        NO_LINK_EVENTS,
        AbortSignal.timeout(START_MS),
      );
      subscription?.close();
      await use?.(connection);
      await connection.close();
      const { revision, instructions, capabilities, serverInfo } = hello;
      return { revision, instructions, capabilities: capabilities.keys(), serverInfo: serverInfo.keys() };
    },
    [Symbol.asyncDispose]: () => reach[Symbol.asyncDispose](),
  };
}

function program(mode: string): StdioTarget {
  const file = join(import.meta.dirname, '../../fixtures/servers/probe-stdio.ts');
  return { kind: 'stdio', command: process.execPath, args: [file, mode], env: marker(), cwd: undefined };
}

const remote = ({ url }: Upstream): HttpTarget => ({ kind: 'http', url, headers: {} });

const DISCOVERED = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: {} };
const INITIALIZED = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 's', version: '1' } };

type Answer = (request: Received, response: ServerResponse) => void;

const refuses =
  (status: number, body?: (id: unknown) => string): Answer =>
  (request, response) => {
    response.writeHead(status, { 'content-type': body === undefined ? 'text/plain' : 'application/json' });
    response.end(body === undefined ? 'no' : body(request.id));
  };

const error = (code: number, data?: object) => (id: unknown) => errorText(id, { code, message: 'no', data });
/** Legacy servers refuse a request without its id. */
const errorAboutNothing = (code: number) => () => errorText(null, { code, message: 'Bad Request: not initialized' });

const TRANSIENT = [
  ['503', refuses(503)],
  ['503 and an error of its own', refuses(503, error(-31_014))],
  ['500 and −32000', refuses(500, error(-32_000))],
  ['200 and an error of its own', refuses(200, error(-31_013))],
  ['200 and −32603', refuses(200, error(-32_603))],
] as const;

const discovers: Answer = ({ id }, response) => json(response, resultText(id, DISCOVERED));

/** Starts a server with this answer to `server/discover`, and by default the answer of 2025-11-25 to `initialize`. */
function probed(discover: () => Answer, initialize: () => Answer | undefined = () => undefined): Promise<Upstream> {
  return serve((request, response) => {
    if (request.rpc === 'server/discover') discover()(request, response);
    else if (request.rpc === 'initialize') {
      const greet: Answer = ({ id }) => json(response, resultText(id, INITIALIZED));
      (initialize() ?? greet)(request, response);
    } else response.writeHead(request.method === 'POST' ? 202 : 405).end();
  });
}

const openings = ({ received }: Upstream) =>
  received.items.map(({ rpc }) => rpc).filter((rpc) => rpc === 'server/discover' || rpc === 'initialize');

/** Time goes slowly beside a program that answers, so that it is not taken for a silent one on a busy machine. */
const [SLOW_MS, FAST_MS] = [1, 20];

suite('a program', () => {
  for (const { mode, why, revision, methods } of [
    // L-001
    { mode: 'modern', why: 'that answers server/discover', revision: '2026-07-28' },
    {
      mode: 'silent',
      // L-007
      why: 'that sends nothing',
      revision: '2025-11-25',
      methods: /^server\/discover .*initialize$/,
    },
    // L-007
    { mode: 'exits', why: 'that exits on server/discover', revision: '2025-11-25', methods: /^initialize$/ },
    // L-007
    {
      mode: 'refuses:-32601:exits',
      why: 'that refuses server/discover and exits',
      revision: '2025-11-25',
      methods: /^initialize$/,
    },
    ...[-32_601, -32_600, -32_602, -32_000, -32_002, 1].map((code) => ({
      mode: `refuses:${code}`,
      // L-007
      why: `that answers ${code}`,
      revision: '2025-11-25',
      methods: /^server\/discover .*initialize$|^server\/discover initialize$/,
    })),
    {
      mode: 'lists:2025-06-18:2025-11-25',
      // L-012
      why: 'that discovers only older revisions',
      revision: '2025-11-25',
      methods: /initialize$/,
    },
    {
      mode: 'supports:2025-11-25',
      // L-010
      why: 'that supports only an older revision',
      revision: '2025-11-25',
      methods: /initialize$/,
    },
    {
      mode: 'supports:2025-11-25:2026-07-28',
      // L-010
      why: 'that refuses once and names a common revision',
      revision: '2026-07-28',
    },
  ]) {
    test(`${why} gets revision ${revision}`, TIMEOUT, async (t) => {
      const time = stopTime(t);
      await using links = await prober(program(mode));
      const opened = await time.passUntil(links.open(), mode === 'silent' ? FAST_MS : SLOW_MS);
      assert.equal(opened.revision, revision);
      if (methods !== undefined) assert.match(opened.instructions ?? '', methods);
    });
  }

  // L-007
  test('that refuses server/discover after it was initialized stays legacy', TIMEOUT, async (t) => {
    const time = stopTime(t);
    await using links = await prober(program('late:2025-11-25:2026-07-28'));
    const options = { timeoutMs: START_MS, maxMs: START_MS, progress: false, context: '' };
    let received = '';
    const opening = links.open(async (connection) => {
      const call = () => connection.call('tools/call', RawObject.of({ name: 'received' }), options).answer;
      // The refusal is read before the first answer.
      await call();
      received = JSON.stringify(await call());
    });
    assert.equal((await time.passUntil(opening, FAST_MS)).revision, '2025-11-25');
    assert.match(received, /server\/discover .*initialize notifications\/initialized tools\/call tools\/call/);
  });

  // L-010
  test('that supports only a newer revision is not used with an older one', TIMEOUT, async (t) => {
    const time = stopTime(t);
    await using links = await prober(program('supports:2031-01-01'));
    await assert.rejects(time.passUntil(links.open(), SLOW_MS), {
      code: 'upstream-unavailable',
      message: /2031-01-01/,
    });
  });
});

suite('a remote server', () => {
  for (const [name, discover] of [
    ['400 and no message', refuses(400)],
    ['400 and an error about no request', refuses(400, errorAboutNothing(-32_000))],
    ['400 and −32600', refuses(400, error(-32_600))],
    ['400 and −32602', refuses(400, error(-32_602))],
    ['404', refuses(404)],
    ['404 and −32601', refuses(404, error(-32_601))],
    ['405', refuses(405)],
    ['422', refuses(422)],
    ['200 and −32601', refuses(200, error(-32_601))],
    ['400, −32022 and older revisions alone', refuses(400, error(-32_022, { supported: ['2025-11-25'] }))],
  ] as const) {
    // L-008
    test(`that answers ${name} gets revision 2025-11-25`, TIMEOUT, async () => {
      await using server = await probed(() => discover);
      await using links = await prober(remote(server));
      assert.equal((await links.open()).revision, '2025-11-25');
      assert.deepEqual(openings(server), ['server/discover', 'initialize']);
    });
  }

  for (const code of [-32_020, -32_021]) {
    // L-008
    test(`that answers 400 and ${code} is modern, and gets no initialize`, TIMEOUT, async () => {
      await using server = await probed(() => refuses(400, error(code, { requiredCapabilities: {} })));
      await using links = await prober(remote(server));
      await assert.rejects(links.open(), { code: 'upstream-unavailable' });
      assert.deepEqual(openings(server), ['server/discover']);
    });
  }

  // L-010
  test('that refuses once with −32022 and names our revision is probed again', TIMEOUT, async () => {
    let asked = 0;
    const unsupported = refuses(400, error(-32_022, { supported: ['2026-07-28'], requested: '2026-07-28' }));
    await using server = await probed(() => (asked++ === 0 ? unsupported : discovers));
    await using links = await prober(remote(server));
    assert.equal((await links.open()).revision, '2026-07-28');
    assert.deepEqual(openings(server), ['server/discover', 'server/discover']);
  });

  // L-010
  test('that refuses twice with our revision is not probed again, nor initialized', TIMEOUT, async () => {
    const unsupported = refuses(400, error(-32_022, { supported: ['2026-07-28'], requested: '2026-07-28' }));
    await using server = await probed(() => unsupported);
    await using links = await prober(remote(server));
    await assert.rejects(links.open(), { code: 'upstream-unavailable' });
    assert.deepEqual(openings(server), ['server/discover', 'server/discover']);
  });

  // N-01
  test('that answers initialize with 2026-07-28 serves a legacy client in that era', TIMEOUT, async () => {
    const chooses: Answer = ({ id }, response) =>
      json(response, resultText(id, { ...INITIALIZED, protocolVersion: '2026-07-28' }));
    await using server = await probed(
      () => discovers,
      () => chooses,
    );
    await using links = await prober(remote(server), 'legacy');
    assert.equal((await links.open()).revision, '2026-07-28');
    assert.deepEqual(openings(server), ['initialize', 'server/discover']);
  });

  for (const [name, refusal] of TRANSIENT) {
    // L-009
    test(`that answers initialize with ${name} once keeps its era`, TIMEOUT, async () => {
      let asked = 0;
      await using server = await probed(
        () => discovers,
        () => (asked++ === 0 ? refusal : undefined),
      );
      await using links = await prober(remote(server), 'legacy');
      await assert.rejects(links.open(), { code: 'upstream-unavailable' });
      assert.deepEqual(openings(server), ['initialize']);
      assert.equal((await links.open()).revision, '2025-11-25');
    });
  }

  // L-008
  test('that answers initialize with 501 and −32601 is asked for the other era', TIMEOUT, async () => {
    const lacks = refuses(501, error(-32_601));
    await using server = await probed(
      () => discovers,
      () => lacks,
    );
    await using links = await prober(remote(server), 'legacy');
    assert.equal((await links.open()).revision, '2026-07-28');
  });

  // L-012
  test('that discovers only older revisions gets one of them', TIMEOUT, async () => {
    const old: Answer = ({ id }, response) =>
      json(response, resultText(id, { ...DISCOVERED, supportedVersions: ['2025-11-25'] }));
    await using server = await probed(() => old);
    await using links = await prober(remote(server));
    assert.equal((await links.open()).revision, '2025-11-25');
  });

  for (const status of [401, 403]) {
    // L-009
    test(`that answers ${status} decides nothing, and may be modern later`, TIMEOUT, async () => {
      let isOpen = false;
      await using server = await probed(() => (isOpen ? discovers : refuses(status)));
      await using links = await prober(remote(server));
      await assert.rejects(links.open(), { code: 'upstream-unavailable' });
      assert.deepEqual(openings(server), ['server/discover']);
      isOpen = true;
      assert.equal((await links.open()).revision, '2026-07-28');
    });
  }

  for (const clientEra of ['modern', 'legacy'] as const) {
    // SEC-32
    test(`that redirects fails with that reason for a ${clientEra} client`, TIMEOUT, async () => {
      const redirects = refuses(307);
      await using server = await probed(
        () => redirects,
        () => redirects,
      );
      await using links = await prober(remote(server), clientEra);
      await assert.rejects(links.open(), /answered with a redirect \(HTTP 307\), which is not followed/);
    });
  }

  for (const [name, answer] of [
    ['500', refuses(500)],
    ['503', refuses(503)],
    ['429', refuses(429)],
    ['nothing', () => undefined],
  ] as const) {
    // L-009
    test(`that is down and answers ${name} decides nothing`, TIMEOUT, async (t) => {
      const time = stopTime(t);
      let isUp = false;
      await using server = await probed(
        () => (isUp ? discovers : answer),
        () => (isUp ? undefined : answer),
      );
      await using links = await prober(remote(server));
      const opening = links.open();
      await server.received.at(0);
      await assert.rejects(time.passUntil(opening, 1_000));
      isUp = true;
      assert.equal((await links.open()).revision, '2026-07-28');
    });
  }
});

/** Moves the monotonic clock of this process ahead. */
function clock(t: TestContext): { aheadMs: number } {
  const now = performance.now.bind(performance);
  const state = { aheadMs: 0 };
  t.mock.method(performance, 'now', () => now() + state.aheadMs);
  return state;
}

// L-011
test('a legacy server is not probed again until the finding expires', TIMEOUT, async (t) => {
  const time = clock(t);
  let discover: Answer = refuses(404);
  await using server = await probed(() => discover);
  await using links = await prober(remote(server));
  await links.open();
  await links.open();
  assert.deepEqual(openings(server), ['server/discover', 'initialize', 'initialize']);
  discover = discovers;
  time.aheadMs = 3_600_001;
  assert.equal((await links.open()).revision, '2026-07-28');
});

for (const [name, refusal] of TRANSIENT) {
  // L-009
  test(`a server that answered server/discover with ${name} is probed a minute later`, TIMEOUT, async (t) => {
    const time = clock(t);
    let discover: Answer = refusal;
    await using server = await probed(() => discover);
    await using links = await prober(remote(server));
    // The server answers initialize, so clients are served meanwhile.
    assert.equal((await links.open()).revision, '2025-11-25');
    discover = discovers;
    time.aheadMs = 60_001;
    assert.equal((await links.open()).revision, '2026-07-28');
  });
}

// L-011
test('after a failure the server is probed again, as it may have been replaced', TIMEOUT, async (t) => {
  const time = clock(t);
  let isReplaced = false;
  await using server = await probed(
    () => (isReplaced ? discovers : refuses(404)),
    () => (isReplaced ? refuses(404, error(-32_601)) : undefined),
  );
  await using links = await prober(remote(server));
  assert.equal((await links.open()).revision, '2025-11-25');
  isReplaced = true;
  time.aheadMs = 60_001;
  await assert.rejects(links.open());
  assert.equal((await links.open()).revision, '2026-07-28');
});

// L-011
test('a server that is no longer modern gets a legacy handshake', TIMEOUT, async () => {
  let discover = discovers;
  await using server = await probed(() => discover);
  await using links = await prober(remote(server));
  assert.equal((await links.open()).revision, '2026-07-28');
  discover = refuses(404);
  assert.equal((await links.open()).revision, '2025-11-25');
});

for (const era of ['modern', 'legacy'] as const) {
  const opening = async (hello: Readonly<Record<string, unknown>>) => {
    const answers: Answer = ({ id }, response) => json(response, resultText(id, hello));
    await using server = await (era === 'modern'
      ? probed(() => answers)
      : probed(
          () => refuses(404),
          () => answers,
        ));
    await using up = await prober(remote(server));
    return { ...(await up.open()), limits: up.limits };
  };

  // SEC-24
  test(`limit instructionsChars: longer instructions of a ${era} server are cut`, TIMEOUT, async () => {
    const instructions = 'x'.repeat(LIMITS.instructionsChars + 1);
    const opened = await opening(era === 'modern' ? { ...DISCOVERED, instructions } : { ...INITIALIZED, instructions });
    assert.equal(opened.instructions?.length, LIMITS.instructionsChars);
    assert.ok(opened.limits.includes('instructionsChars'));
  });

  test(`limit helloChars: a ${era} server is taken without what is beyond it`, TIMEOUT, async () => {
    const long = 'x'.repeat(LIMITS.helloChars);
    const capabilities = { prompts: {}, extensions: { 'io.modelcontextprotocol/ui': { long } }, tools: {} };
    const serverInfo = { name: 's', version: '1', icons: [{ src: long }] };
    const opened = await opening(
      era === 'modern'
        ? { ...DISCOVERED, capabilities, _meta: { [META.serverInfo]: serverInfo } }
        : { ...INITIALIZED, capabilities, serverInfo },
    );
    assert.deepEqual(opened.capabilities, ['prompts', 'tools']);
    assert.deepEqual(opened.serverInfo, ['name', 'version']);
    assert.ok(opened.limits.includes('helloChars'));
  });
}

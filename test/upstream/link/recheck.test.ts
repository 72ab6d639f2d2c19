import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { pino } from 'pino';
import { upstreamTransports } from '../../../src/compose/transports.ts';
import { RawObject } from '../../../src/json/json.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { Opener } from '../../../src/upstream/link/opener.ts';
import { isHandshakeRefusal, type RecheckOutcome } from '../../../src/upstream/link/recheck.ts';
import { configWith } from '../../downstream/edge.ts';
import { json } from '../../fixtures/servers/http-harness.ts';
import { UPSTREAM } from '../../support/core.ts';
import {
  type HttpUpstream,
  legacyUpstream,
  modernUpstream,
  resultText,
  type Served,
} from '../../support/http-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { NO_LINK_EVENTS } from '../../support/link-events.ts';

const TIMEOUT = { timeout: 120_000 };
const LOG = pino({ level: 'silent' });

type Members = Readonly<Record<string, unknown>>;

interface Script {
  instructions?: string;
  answers: Record<string, (served: Served) => Members | undefined>;
}

const HANDSHAKES = ['server/discover', 'initialize'];

/** Opens a link, changes the server, and checks the link. */
async function recheckAfter(server: HttpUpstream, change: () => void): Promise<RecheckOutcome> {
  const config = configWith({});
  await using reach = await upstreamTransports(config, createMetrics('0'), LOG);
  const up = { ...UPSTREAM, ...server.config, id: 'up', title: 'up', prefix: 'up__', era: 'auto' } as const;
  const opener = new Opener<string>({
    upstream: 'up',
    transports: reach.transportTo(up, config.limits).options,
    clientInfo: RawObject.of({ name: 'linkspan', version: '1' }),
    timeouts: () => ({ startMs: PATIENCE_MS, callMs: PATIENCE_MS }),
    log: LOG,
    onLimit: () => undefined,
  });
  const request = {
    clientEra: 'modern',
    audience: '',
    clientCapabilities: RawObject.EMPTY,
    capabilityKey: '',
    placeIn: () => ({ key: 'a', purpose: 'all' as const }),
  } as const;
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const link = await opener.open(request, NO_LINK_EVENTS, signal);
  try {
    change();
    return await opener.recheck(link, signal);
  } finally {
    link.subscription?.close();
    await link.connection.close();
  }
}

function failWith(status: number): (served: Served) => undefined {
  return ({ response }) => {
    response.writeHead(status).end();
  };
}

function errorWith(code: number): (served: Served) => undefined {
  return (served) => {
    served.error(code, 'It failed');
  };
}

/** Refuses a revision, and names one of either era. Afterwards a proxy answers in its place. */
function refuseOnce(): (served: Served) => undefined {
  let isFirst = true;
  const supported = ['2025-06-18', '2026-07-28'];
  return (served) => {
    if (isFirst) served.error(RPC.unsupportedVersion, 'Unsupported protocol version', { supported });
    else failWith(404)(served);
    isFirst = false;
  };
}

const CHANGES: readonly (readonly [string, RecheckOutcome, (answers: Script['answers']) => void])[] = [
  ['answers as before', 'same', () => undefined],
  ['is down', 'unknown', (answers) => HANDSHAKES.forEach((method) => (answers[method] = failWith(503)))],
  ['wants credentials', 'unknown', (answers) => HANDSHAKES.forEach((method) => (answers[method] = failWith(401)))],
  ['refuses the handshake', 'refused', (answers) => HANDSHAKES.forEach((method) => (answers[method] = failWith(404)))],
  ['is broken', 'unknown', (answers) => HANDSHAKES.forEach((method) => (answers[method] = errorWith(-32_603)))],
  ['lacks the handshake', 'era', (answers) => HANDSHAKES.forEach((method) => (answers[method] = errorWith(-32_601)))],
  ['refuses it and goes', 'refused', (answers) => HANDSHAKES.forEach((method) => (answers[method] = refuseOnce()))],
];

for (const [era, serverOf] of [
  ['modern', modernUpstream],
  ['legacy', legacyUpstream],
] as const) {
  suite(`a recheck of a ${era} server without sessions`, () => {
    for (const [name, outcome, change] of CHANGES) {
      // L-011
      test(`that ${name} ends with "${outcome}"`, TIMEOUT, async () => {
        const script: Script = { answers: {} };
        await using server = await serverOf(script);
        assert.equal(await recheckAfter(server, () => change(script.answers)), outcome);
      });
    }
  });
}

// L-011
test('a server that has begun to give out sessions has changed', TIMEOUT, async () => {
  const script: Script = { answers: {} };
  await using server = await legacyUpstream(script);
  const serverInfo = { name: 'scripted', version: '1' };
  const outcome = await recheckAfter(server, () => {
    script.answers['initialize'] = ({ id, response }) => {
      const hello = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo };
      json(response, resultText(id, hello), { 'mcp-session-id': 's-1' });
      return undefined;
    };
  });
  assert.equal(outcome, 'changed');
});

// L-011
test('a server that only has another version is merely described otherwise', TIMEOUT, async () => {
  const serverInfo = { name: 'scripted', version: '1' };
  const initialize = () => ({ protocolVersion: '2025-11-25', capabilities: {}, serverInfo });
  await using server = await legacyUpstream({ answers: { initialize } });
  const outcome = await recheckAfter(server, () => {
    serverInfo.version = '2';
  });
  assert.equal(outcome, 'described');
});

// L-011
test('a server that supports only a revision after ours has changed', TIMEOUT, async () => {
  const script: Script = { answers: {} };
  await using server = await modernUpstream(script);
  const outcome = await recheckAfter(server, () => {
    script.answers['server/discover'] = (served) => {
      served.error(RPC.unsupportedVersion, 'Unsupported protocol version', { supported: ['2027-01-01'] });
      return undefined;
    };
  });
  assert.equal(outcome, 'changed');
});

const REFUSALS = [
  { error: { code: RPC.unsupportedVersion, message: 'No' }, is: true },
  { error: { code: -32_000, message: 'Bad Request: Unsupported protocol version (supported: …)' }, is: true },
  { error: { code: -32_000, message: 'Bad Request: Server not initialized' }, is: true },
  { error: { code: -32_602, message: 'Unknown tool' }, is: false },
];

for (const { error, is } of REFUSALS) {
  test(`"${error.message}" is ${is ? 'a' : 'no'} refusal for want of a handshake`, () => {
    assert.equal(isHandshakeRefusal(error), is);
  });
}

import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pino } from 'pino';
import type { StdioTarget } from '../../../src/config/values/upstream-config.ts';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import { type Era, ERAS } from '../../../src/protocol/revisions.ts';
import { Opener } from '../../../src/upstream/link/opener.ts';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { mayDownload } from '../../../src/upstream/stdio/launch/downloads.ts';
import { stdioTransport } from '../../../src/upstream/stdio/stdio.ts';
import { WrapperCommands } from '../../../src/upstream/stdio/launch/wrapper-commands.ts';
import { UNBOUNDED } from '../../support/receiving.ts';
import { stopTime } from '../../support/stopped-time.ts';

const BOUNDED = { timeout: 120_000 };
const START_MS = 500; // subject
/** Time goes slowly beside the programs, which run meanwhile. */
const STEP_MS = 1; // subject
const log = pino({ level: 'silent' });
let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-late-'));
  // npx as it is while it downloads.
  await writeFile(join(dir, 'npx'), '#!/bin/sh\nexec sleep 60\n');
  await chmod(join(dir, 'npx'), 0o755);
});

after(() => rm(dir, { recursive: true }));

/** Opens a link to a program that does not start in time. Returns the error. */
async function failureOf(command: string, args: readonly string[], clientEra: Era = 'legacy'): Promise<GatewayError> {
  await using guard = new ProcessGuard(log);
  const target: StdioTarget = { kind: 'stdio', command, args, env: {}, cwd: undefined };
  const wrappers = new WrapperCommands(dir, guard, log);
  const start = stdioTransport(target, {
    upstream: 'up',
    messageBytes: 10_000,
    receiving: UNBOUNDED,
    log,
    guard,
    wrappers,
  });
  const opener = new Opener<string>({
    upstream: 'up',
    transports: [{ era: 'either', isProcess: true, mayDownload: mayDownload(command), hasCallStreams: false, start }],
    clientInfo: RawObject.EMPTY,
    timeouts: () => ({ startMs: START_MS, callMs: START_MS }),
    log,
    onLimit: () => undefined,
  });
  const opening = opener.open(
    {
      clientEra,
      audience: '',
      clientCapabilities: RawObject.EMPTY,
      capabilityKey: '',
      placeIn: () => ({ key: 'a', purpose: 'clients' }),
    },
    {
      onOpen: () => {},
      onNotification: () => {},
      onGap: () => {},
      onServerRequest: () => {},
      onClose: () => {},
      onUnauthorized: () => {},
      onRefused: () => {},
      onMaybeDown: () => {},
    },
    AbortSignal.timeout(START_MS),
  );
  const failure = await opening.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(failure instanceof GatewayError);
  return failure;
}

function causeOf({ cause }: GatewayError): string {
  return cause instanceof Error ? cause.message : '';
}

// N-07
test('a wrapper that still downloads is too slow to start, with what to do', BOUNDED, async (t) => {
  const failure = await stopTime(t).passUntil(failureOf(join(dir, 'npx'), ['-y', 'x']), STEP_MS);
  assert.equal(failure.detail.message, 'upstream "up" did not start within 0.5 s (timeouts.start)');
  assert.match(causeOf(failure), /may download packages: run "linkspan prefetch", or raise timeouts\.start/);
});

for (const era of ERAS) {
  // N-07
  test(`a mute program did not answer a ${era} client in time`, BOUNDED, async (t) => {
    const failure = await stopTime(t).passUntil(failureOf('sleep', ['60'], era), STEP_MS);
    assert.equal(failure.detail.message, 'upstream "up" did not answer the handshake within 0.5 s (timeouts.start)');
    assert.match(causeOf(failure), /timeouts\.start/);
    assert.doesNotMatch(causeOf(failure), /prefetch/, 'sleep downloads nothing');
  });
}

/** Programs that wait for somebody who does not see what they print, and the line that says so. */
const WAITING: readonly (readonly [string, string])[] = [
  ['echo "open https://x.test and enter AB" >&2; sleep 60', 'last line on stderr: open https://x.test and enter AB'],
  [
    'trap "echo Bye >&2; exit" TERM; echo "Running on 8000" >&2; cat >/dev/null; sleep 60 & wait',
    'last line on stderr: Running on 8000',
  ],
  ['printf "Password: "; sleep 60', 'first line on stdout: Password:'],
];

for (const [script, said] of WAITING) {
  test(`a program that waits in its start is quoted: ${said}`, BOUNDED, async (t) => {
    const failure = await stopTime(t).passUntil(failureOf('sh', ['-c', script]), STEP_MS);
    assert.ok(causeOf(failure).endsWith(`; ${said}`), causeOf(failure));
    assert.doesNotMatch(failure.detail.message ?? '', /stderr|stdout/, 'clients do not read it');
  });
}

/** Tests a rolling upgrade and a downgrade. `npm run rolls -- --older` does it with three replicas and more load. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRemote } from '../support/nonce-remote.ts';
import { NO_HISTORY, OlderVersion } from '../support/older-version.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { RollLoad } from '../support/roll-load.ts';
import { waitUntil } from '../support/wait-until.ts';

const SKIP = MISSING ?? NO_HISTORY;
/** The calls that are answered around each restart. */
const CALLS = 30;
const OPTIONS = { timeout: 300_000, ...(SKIP === undefined ? {} : { skip: SKIP }) };

// R10
test('an upgrade and a downgrade under load lose no call and no session', OPTIONS, async () => {
  await using older = await OlderVersion.checkout();
  await using remote = await startRemote();
  const config = {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    // The load opens sessions without end, and ends none.
    gateway: { limits: { sessionsPerPrincipal: 100_000 } },
  };
  await using replicas = await Replicas.start(2, config, {}, 'ready in turn', [older.program, older.program]);
  await replicas.untilAllKnown();
  await using load = await RollLoad.start(replicas.url, {
    sessions: 4,
    moderns: 4,
    streams: 2,
    pauseMs: 20,
    betweenMs: 80,
  });
  for (const [index, program] of [[0], [1], [0, older.program]] as const) {
    const before = load.answered;
    await replicas.restart(index, program);
    await waitUntil(() => load.answered > before + CALLS);
  }
  const { nonces, failures } = await load.stop();
  assert.deepEqual(failures, []);
  const ledger = await remote.ledger();
  for (const nonce of nonces) assert.equal(ledger[nonce]?.ran, 1, nonce);
});

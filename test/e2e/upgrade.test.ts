/** Tests a rolling upgrade and a downgrade. `npm run rolls -- --older` does it with three replicas and more load. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startRemote } from '../support/nonce-remote.ts';
import { NO_HISTORY, OlderVersion } from '../support/older-version.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { RollLoad } from '../support/roll-load.ts';

const SKIP = MISSING ?? NO_HISTORY;
const OPTIONS = { timeout: 170_000, ...(SKIP === undefined ? {} : { skip: SKIP }) };

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
  for (const index of replicas.each.keys()) await replicas.restart(index);
  await replicas.restart(0, older.program);
  const { nonces, failures } = await load.stop();
  assert.deepEqual(failures, []);
  assert.ok(nonces.length > 100, `${nonces.length} calls`);
  const ledger = await remote.ledger();
  for (const nonce of nonces) assert.equal(ledger[nonce]?.ran, 1, nonce);
});

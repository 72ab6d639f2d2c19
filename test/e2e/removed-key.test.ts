/** Tests that an API key that was removed from the config is refused soon, whatever its owner and the folder of the config do meanwhile. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { type GatewayFile, startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
/** The owner of a removed key goes on calling for at most this long. */
const PATIENCE_MS = 30_000;
/** Calls at once, so that the log is written all the time. */
const CALLERS = 16;
const ANN = { name: 'ann', sha256: hash('sha256', 'ann-key') };
const BOB = { name: 'bob', sha256: hash('sha256', 'bob-key') };
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
const CALL = rpc(1, 'tools/call', { name: 'up__look', arguments: {} });

// N-71
test('a removed API key is refused while its calls are logged beside the config', TIMEOUT, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-removed-'));
  t.after(() => rm(dir, { recursive: true }));
  const log = join(dir, 'gateway.log');
  await using upstream = await legacyUpstream({
    tools: [{ name: 'look', inputSchema: { type: 'object' } }],
    answers: { 'tools/call': () => ({ content: [] }) },
  });
  const file = (...apiKeys: readonly unknown[]): GatewayFile => ({
    mcpServers: { up: { url: upstream.url } },
    gateway: { auth: { apiKeys }, accessLog: 'all' },
  });
  const via = ['bash', '-c', 'exec "$@" 2> >(exec tee "$0" >&2)', log];
  await using gateway = await startGateway(file(ANN, BOB), { dir, via });
  const write = `setInterval(() => require('node:fs').appendFileSync(${JSON.stringify(join(dir, 'other.log'))}, 'line\\n'), 20)`;
  await using _other = await Child.start(process.execPath, ['-e', write]);
  const url = gateway.endpoint();
  const [ofAnn, ofBob] = await Promise.all(
    ['ann-key', 'bob-key'].map((key) => initialize(url, undefined, bearer(key))),
  );
  const callOfBob = async () => (await post(url, CALL, ofBob, bearer('bob-key'))).status;
  assert.equal(await callOfBob(), 200);

  await gateway.configure(file(ANN));
  const removedMs = performance.now();
  let calls = 0;
  const callOn = async () => {
    while ((await callOfBob()) === 200) {
      calls++;
      assert.ok(performance.now() - removedMs < PATIENCE_MS, `accepted ${calls} times after its removal`);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, callOn));
  t.diagnostic(`refused after ${Math.round(performance.now() - removedMs)} ms and ${calls} calls`);
  assert.equal(await callOfBob(), 401);
  assert.equal((await post(url, CALL, ofAnn, bearer('ann-key'))).status, 200);
  assert.match(await readFile(log, 'utf8'), /tools\/call/);
});

/** Tests that an API key that was removed from the config is refused soon, whatever its owner and the folder of the config do meanwhile. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as z from 'zod';
import { ADMIN_PATH } from '../../src/operator/admin/routes.ts';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { modernPost } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
/** The owner of a removed key goes on calling for at most this long. */
const PATIENCE_MS = 30_000;
/** Calls at once, so that the log is written all the time. */
const CALLERS = 16;
const ANN = { name: 'ann', sha256: hash('sha256', 'ann-key') };
const BOB = { name: 'bob', sha256: hash('sha256', 'bob-key') };
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
const TOOLS = [{ name: 'look', inputSchema: { type: 'object' } }];
let lastId = 0;
const callText = () => rpc(++lastId, 'tools/call', { name: 'up__look', arguments: {} });

// N-71
test('a removed API key is refused while its calls are logged beside the config', TIMEOUT, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-removed-'));
  t.after(() => rm(dir, { recursive: true }));
  const log = join(dir, 'gateway.log');
  await using upstream = await legacyUpstream({
    tools: TOOLS,
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
  const callOfBob = async () => (await post(url, callText(), ofBob, bearer('bob-key'))).status;
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
  assert.equal((await post(url, callText(), ofAnn, bearer('ann-key'))).status, 200);
  assert.match(await readFile(log, 'utf8'), /tools\/call/);
});

const LISTED = z.object({ sessions: z.array(z.object({ kind: z.string(), principal: z.string() })) });

/** Returns the kinds of the sessions and groups of a key that operators see. */
async function kindsOf(gateway: RunningGateway, name: string): Promise<string[]> {
  const file = await readFile(join(gateway.dir, 'state', 'operator.json'), 'utf8');
  const { url, token } = z.object({ url: z.string(), token: z.string() }).parse(JSON.parse(file));
  const { text } = await send(`${url}${ADMIN_PATH}/sessions`, { headers: { authorization: `Bearer ${token}` } });
  const { sessions } = LISTED.parse(JSON.parse(text));
  return sessions.filter(({ principal }) => principal === name).map(({ kind }) => kind);
}

// N-77
test('the sessions and the calls under way of a removed API key end with it', TIMEOUT, async () => {
  // This upstream never answers a call.
  await using upstream = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': () => undefined } });
  const file = (...apiKeys: readonly unknown[]): GatewayFile => ({
    mcpServers: { up: { url: upstream.url } },
    gateway: { auth: { apiKeys } },
  });
  await using gateway = await startGateway(file(ANN, BOB));
  const url = gateway.endpoint();
  const headers = bearer('bob-key');
  const params = { name: 'up__look', arguments: {} };
  const session = await initialize(url, undefined, headers);
  await initialize(url, undefined, bearer('ann-key'));
  const calls = [
    post(url, callText(), session, headers),
    modernPost(url, 'tools/call', params, { headers }),
    // This call may ask its client, so it can outlive its request.
    modernPost(url, 'tools/call', params, { headers, capabilities: { elicitation: {} } }),
  ];
  await waitUntil(() => upstream.requests('tools/call').length === calls.length);
  assert.deepEqual((await kindsOf(gateway, 'bob')).toSorted(), ['group', 'group', 'session']);

  await gateway.configure(file(ANN));
  const codes = (await Promise.all(calls)).map((got) => messagesOf(got).at(-1)?.error);
  for (const error of codes)
    assert.match(JSON.stringify(error), /"code":"cancelled","upstream":"up","executed":"unknown"/);
  await waitUntil(async () => (await kindsOf(gateway, 'bob')).length === 0);
  assert.deepEqual(await kindsOf(gateway, 'ann'), ['session']);
});

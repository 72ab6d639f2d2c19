/** Tests replicas with a Redis that is full, that is a cluster, or that accepts TLS alone. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { act, startRemote } from '../support/nonce-remote.ts';
import { openRedis, redisConfig, startCluster, startTls } from '../support/redis.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';
import { metricOf } from '../support/workers.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
/** Longer than a lease, which a full Redis does not renew. */
const FULL_MS = 7_000; // subject
const SESSIONS = 8;
const PARAMS = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };

// R12 REL-28
test('with a full Redis calls go on, and new sessions are refused until it has room', OPTIONS, async (t) => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const urls = replicas.each.map((replica) => replica.endpoint());
  const session = await initialize(urls[0] ?? '');
  const { connection } = await openRedis(redisConfig(replicas.redis.url));
  await connection.command('CONFIG', 'SET', 'maxmemory', '1mb');

  let calls = 0;
  const untilMs = performance.now() + FULL_MS;
  while (performance.now() < untilMs) {
    for (const url of urls) {
      const [ofSession, modern] = [`nonce:1:${++calls};`, `nonce:2:${calls};`];
      const got = await post(url, rpc(calls, 'tools/call', act(ofSession, [])), session);
      assert.ok(got.text.includes(`"text":"${ofSession}"`), got.text);
      const { result, error } = answerOf(await modernPost(url, 'tools/call', act(modern, [])));
      assert.match(JSON.stringify({ result, error }), new RegExp(`"text":"${modern}"`));
    }
  }
  t.diagnostic(`${2 * calls} calls`);
  for (const replica of replicas.each) {
    const refused = await post(replica.endpoint(), rpc(1, 'initialize', PARAMS));
    assert.match(refused.text, /"code":"store-unavailable","executed":"no","retryable":true/);
    const ready = await fetch(`${replica.operatorUrl}/readyz`);
    assert.equal(ready.status, 200);
    assert.match(await ready.text(), /Redis is full \(maxmemory\) and refuses writes/);
  }
  await connection.command('CONFIG', 'SET', 'maxmemory', '0');
  for (const url of urls) await initialize(url);
});

const KINDS = [
  { kind: 'a cluster of Redis', start: startCluster },
  { kind: 'Redis over TLS', start: startTls },
] as const;

for (const { kind, start } of KINDS) {
  // R11
  test(`with ${kind} sessions are served by another replica, also after SIGKILL`, OPTIONS, async () => {
    await using remote = await startRemote();
    await using redis = await start();
    const own = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')], events: true };
    const config = {
      mcpServers: { nonce: { url: `${remote.url}/mcp` } },
      gateway: { redis: 'caFile' in redis ? { ...own, caFile: redis.caFile } : own },
    };
    await using one = await startGateway(config);
    await using two = await startGateway(config);
    for (const each of [one, two]) await waitUntil(async () => (await metricOf(each, /^linkspan_replicas /)) === 2);
    const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => initialize(one.endpoint())));
    const call = async (n: number, nonce: string) =>
      (await post(two.endpoint(), rpc(1, 'tools/call', act(nonce, ['progress'])), sessions[n])).text;
    for (const n of sessions.keys()) assert.match(await call(n, `nonce:1:${n};`), new RegExp(`"text":"nonce:1:${n};"`));
    one.kill('SIGKILL');
    for (const n of sessions.keys()) {
      await waitUntil(async () => (await call(n, `nonce:2:${n};`)).includes(`"text":"nonce:2:${n};"`));
    }
    assert.doesNotMatch(two.logs(), /"level":[56]0/);
  });
}

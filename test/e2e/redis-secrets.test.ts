/** Tests that nothing is readable in Redis that is a credential, or that names a client or what it uses. */
import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { openRedisKeys } from '../../src/compose/keys/open-redis-keys.ts';
import { loadConfig } from '../../src/config/load.ts';
import { initialize } from '../downstream/client.ts';
import type { Handle } from '../support/handles/handle-kind.ts';
import { HANDLE_KINDS } from '../support/handles/kinds.ts';
import { HandleTrial } from '../support/handles/trial.ts';
import { openGateway } from '../support/open-gateway.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const CAROL = 'a-key-of-carol-0123456789abcdef';
const CAROL_KEY = { name: 'carol', sha256: hash('sha256', CAROL), owner: 'Carol Lee', groups: ['sales'] };
const RATES = [{ name: 'all', to: { anyone: true }, limit: 1_000, window: '1m' }];
/** Texts that are shorter, such as numbers of requests, may be in other texts. */
const LONG = 16;
/** Names of entries, of each kind in `src/store/redis/keys.ts`. */
const ENTRIES =
  '{ring} {members}:info {p.*}:at: {p.*}:serial {p.*}:rec: {p.*}:ev: {events} {o.*}: {t.*} {outcomes}: {keyed}: {c.*} {keys} {r.*}';

// SEC-11
test('with one of everything in use Redis has no credential, principal or URI', TIMEOUT, async (t) => {
  await using trial = await HandleTrial.start();
  await using redis = await RedisServer.start();
  using commands = await redis.monitor();
  const wrappingKey = randomBytes(32).toString('base64');
  const own = {
    ...trial.config.gateway,
    auth: { ...trial.auth, keysInRedis: true },
    rates: RATES,
    redis: { url: redis.url, wrappingKeys: [wrappingKey], internal: '127.0.0.1:0', events: true },
  };
  await storeKey(own);
  await using one = await openGateway(trial.config.mcpServers ?? {}, own);
  await using two = await openGateway(trial.config.mcpServers ?? {}, own);
  await initialize(one.url, undefined, { authorization: `Bearer ${CAROL}` });
  await trial.signIn([one, two].map(({ url }) => new URL(url).origin));
  const [alice] = trial.actors;
  assert.ok(alice !== undefined);
  const handles: Handle[] = [];
  for (const kind of HANDLE_KINDS) handles.push(await kind.make(alice, trial.upstreams));
  // The bytes of all events are reported once a second.
  await waitUntil(() => commands.text().includes('{events}'));
  const opened = await redis.contents();
  for (const handle of handles) await handle.assertWorks();

  const all = readable(`${opened}${await redis.contents()}${commands.text()}`);
  for (const name of ENTRIES.split(' ')) {
    const pattern = name.replaceAll(/[{}]/g, '.').replace('*', '[^}]+');
    assert.ok(new RegExp(`linkspan:${pattern}`).test(all), `no entry ${name}`);
  }
  const hashes = [CAROL_KEY, ...trial.auth.apiKeys].map(({ sha256 }) => sha256);
  const given = [alice.session, alice.bare, ...handles.map(({ text }) => text)].filter(({ length }) => length >= LONG);
  const secrets = [wrappingKey, CAROL, ...trial.credentials, ...hashes, ...given];
  t.diagnostic(`${all.length} bytes, ${secrets.length} secrets`);
  assert.ok(secrets.length > 20);
  for (const secret of secrets) assert.ok(!all.includes(secret), `Redis has ${secret}`);
  // Names, the beginnings of URIs and of ids at the upstreams, and addresses.
  assert.doesNotMatch(all, /alice|robot|carol|sales|test:\/\/|mod:\/\/|leg__|inner |https?:\/\//);
});

/** Returns a text, and what its parts in base64 are without that. */
function readable(text: string): string {
  const decoded = [...text.matchAll(/[\w+/-]{20,}/g)].map(([part]) =>
    Buffer.from(part, 'base64url').toString('latin1'),
  );
  return [text, ...decoded].join('\n');
}

/** Stores an API key in the Redis of a gateway, as `linkspan key` does. */
async function storeKey(gateway: object): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-secrets-'));
  try {
    const file = join(dir, 'config.json');
    await writeFile(file, JSON.stringify({ mcpServers: {}, gateway }));
    const { config } = await loadConfig(file, { env: process.env });
    assert.ok(config.redis !== undefined);
    await using keys = await openRedisKeys(config.redis);
    await keys.store.change(() => ({ add: [CAROL_KEY] }));
  } finally {
    await rm(dir, { recursive: true });
  }
}

/** Tests the promised time in which a revoked API key is refused everywhere. */
import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { openRedisKeys } from '../../src/compose/keys/open-redis-keys.ts';
import { loadConfig } from '../../src/config/load.ts';
import type { StoredKey } from '../../src/store/api-key-store.ts';
import { post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { openGateway } from '../support/open-gateway.ts';
import { assertWithin } from '../support/promised-time.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';
import { askEachWorker } from '../support/workers.ts';

const TIMEOUT = { timeout: 120_000 };
const REVOKED_MS = 1_000; // subject
const ANN: StoredKey = { name: 'ann', sha256: hash('sha256', 'ann-key') };
const BOB: StoredKey = { name: 'bob', sha256: hash('sha256', 'bob-key') };
const HEADERS = { authorization: 'Bearer ann-key' };
const PARAMS = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-revocation-'));
});
after(() => rm(dir, { recursive: true }));

/** Writes a key file, as `linkspan key` does. */
async function storeKeys(file: string, ...keys: readonly StoredKey[]): Promise<void> {
  await writeFile(`${file}.new`, JSON.stringify({ version: 1, keys }), { mode: 0o600 });
  await rename(`${file}.new`, file);
}

async function statusOf(url: string): Promise<number> {
  return (await post(url, rpc(0, 'initialize', PARAMS), undefined, HEADERS)).status;
}

/** Waits until each of the statuses is this one. Returns the time that it took, in ms. */
async function waitForStatus(status: number, statuses: () => Promise<readonly number[]>): Promise<number> {
  const beganMs = performance.now();
  await waitUntil(async () => (await statuses()).every((each) => each === status));
  return performance.now() - beganMs;
}

// N-71
test('a key that is revoked in a file is refused within a second', TIMEOUT, async (t) => {
  const file = join(dir, 'keys.json');
  await storeKeys(file, ANN, BOB);
  await using gateway = await openGateway({}, { auth: { keyFile: file } });
  const statuses = async () => [await statusOf(gateway.url)];
  await assertWithin(t, REVOKED_MS, async () => {
    await storeKeys(file, ANN, BOB);
    await waitForStatus(200, statuses);
    await storeKeys(file, BOB);
    return await waitForStatus(401, statuses);
  });
});

// N-71
test('a key that is revoked in a file is refused by both workers within a second', TIMEOUT, async (t) => {
  const file = join(dir, 'workers.json');
  await storeKeys(file, ANN, BOB);
  await using gateway = await startGateway({ gateway: { auth: { keyFile: file }, workers: 2 } });
  const statuses = () => askEachWorker(gateway, () => statusOf(gateway.endpoint()));
  assert.equal((await statuses()).length, 2);
  await assertWithin(t, REVOKED_MS, async () => {
    await storeKeys(file, ANN, BOB);
    await waitForStatus(200, statuses);
    await storeKeys(file, BOB);
    return await waitForStatus(401, statuses);
  });
});

test('a key that is revoked in Redis is refused by every replica within a second', TIMEOUT, async (t) => {
  await using redis = await RedisServer.start();
  const shared = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')], internal: '127.0.0.1:0' };
  const own = { auth: { keysInRedis: true }, redis: shared };
  const file = join(dir, 'redis.json');
  await writeFile(file, JSON.stringify({ mcpServers: {}, gateway: own }));
  const { config } = await loadConfig(file, { env: process.env });
  assert.ok(config.redis !== undefined);
  await using keys = await openRedisKeys(config.redis);
  await keys.store.change(() => ({ add: [ANN, BOB] }));
  await using one = await openGateway({}, own);
  await using two = await openGateway({}, own);
  const statuses = () => Promise.all([one, two].map(({ url }) => statusOf(url)));
  await assertWithin(t, REVOKED_MS, async () => {
    await keys.store.change(() => ({ add: [ANN] }));
    await waitForStatus(200, statuses);
    await keys.store.change(() => ({ remove: [ANN] }));
    return await waitForStatus(401, statuses);
  });
});

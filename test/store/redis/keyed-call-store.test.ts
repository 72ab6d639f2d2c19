import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisKeyedCallStore } from '../../../src/store/redis/keyed-call-store.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { keyedCallStoreContract } from '../keyed-call-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

keyedCallStoreContract('redis', async (onLimit, bounds) => {
  return redisKeyedCallStore(await openRedis(redisConfig((await redis).url)), onLimit, bounds);
});

test('Redis cannot read an outcome, and keeps nothing of calls that are over', OPTIONS, async () => {
  const { connection, keys, box } = await openRedis(redisConfig((await redis).url));
  const store = redisKeyedCallStore({ connection, keys, box }, () => undefined);
  const call = { principal: 'ann', name: 'canary key' };
  const entries = keys.keyedCall(call);
  await store.claim(call, 'p/1', 1_000);
  await store.end(call, 'p/1', 'canary', 1_000);
  // If the machine is slow, the call is over already, and there is nothing to read.
  const dump = String(await connection.command('GET', entries[0]));
  assert.doesNotMatch(`${entries[0]} ${dump}`, /canary|ann/);
  const left = async () => {
    const counts = await Promise.all(entries.map((name) => connection.command('EXISTS', name)));
    return counts.reduce((sum: number, count) => sum + Number(count), 0);
  };
  await waitUntil(async () => (await left()) === 0);
});

// REL-08
test('a claim that reaches Redis after its release holds nothing', OPTIONS, async () => {
  const access = await openRedis(redisConfig((await redis).url));
  const store = redisKeyedCallStore(access, () => undefined);
  const call = { principal: 'ann', name: 'late' };
  // The process has got no reply to its claim. The bytes of its last connection come after those of the next one.
  await store.release(call, 'p/1');
  await store.claim(call, 'p/1', 60_000);
  assert.deepEqual(await store.claim(call, 'p/2', 60_000), { kind: 'claimed' });
  assert.deepEqual(await store.claim(call, 'p/3', 60_000), { kind: 'running', claim: 'p/2' });
  const mark = `${access.keys.keyedCall(call)[0]}:p/1`;
  assert.ok(Number(await access.connection.command('PTTL', mark)) > 0, 'the mark of the release expires');
});

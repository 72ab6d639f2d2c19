import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import { redisKeyStore } from '../../../src/store/redis/key-store.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { TcpRelay } from '../../support/tcp-relay.ts';

const redis = sharedRedis();
const HOUR = 3_600_000;
const PAYLOAD = { session: 'a' };

// SEC-30
test('a handle of another process opens although the keys were read just now', { timeout: 120_000 }, async () => {
  const config = redisConfig((await redis).url);
  const [there, here] = [await openRedis(config), await openRedis(config)];
  const sealer = await Sealer.open(redisKeyStore(there));
  const store = redisKeyStore(here);
  const other = await Sealer.open(store);
  let reads = 0;
  const read = store.read.bind(store);
  store.read = () => {
    reads++;
    return read();
  };
  for (let n = 1; n <= 2; n++) {
    await sealer.rotate(HOUR);
    const text = await sealer.seal('session', PAYLOAD, Date.now() + HOUR);
    await other.refresh();
    await sealer.rotate(HOUR);
    const later = await sealer.seal('session', PAYLOAD, Date.now() + HOUR);
    const handles = [text, later, text, later];
    const opened = await Promise.all(handles.map((handle) => other.unseal('session', handle, Date.now())));
    assert.deepEqual(opened, [PAYLOAD, PAYLOAD, PAYLOAD, PAYLOAD]);
    assert.equal(reads, 2 * n, 'all wait for one read');
  }
});

test(
  'a handle of an unknown key waits for the keys once, also if it is opened again',
  { timeout: 120_000 },
  async () => {
    const [there, here] = [
      await openRedis(redisConfig((await redis).url)),
      await openRedis(redisConfig((await redis).url)),
    ];
    const stranger = await Sealer.open(redisKeyStore(there));
    const text = await stranger.seal('session', PAYLOAD, Date.now() + HOUR);
    const store = redisKeyStore(here);
    const sealer = await Sealer.open(store);
    let reads = 0;
    const read = store.read.bind(store);
    store.read = () => {
      reads++;
      return read();
    };
    for (let n = 0; n < 2; n++) assert.equal(await sealer.unseal('session', text, Date.now()), undefined);
    assert.equal(reads, 1);
  },
);

test('a handle of a key that cannot be read now is not taken for an invalid one', { timeout: 120_000 }, async (t) => {
  await using relay = await TcpRelay.open((await redis).port);
  const config = redisConfig((await redis).url);
  const cut = redisConfig(`redis://127.0.0.1:${relay.port}`, {
    prefix: config.prefix,
    wrappingKeys: config.wrappingKeys,
  });
  const [there, here] = [await openRedis(config), await openRedis(cut)];
  const sealer = await Sealer.open(redisKeyStore(there));
  const other = await Sealer.open(redisKeyStore(here));
  await sealer.rotate(HOUR);
  const nowMs = Date.now();
  const text = await sealer.seal('session', PAYLOAD, nowMs + HOUR);

  relay.cut();
  const beganMs = performance.now();
  let laterMs = 1_000;
  t.mock.method(performance, 'now', () => beganMs + laterMs);
  for (let n = 0; n < 3; n++) {
    await assert.rejects(other.unseal('session', text, nowMs), { code: 'store-unavailable' }, `attempt ${n}`);
  }
  relay.restore();
  let payload: unknown;
  while (payload === undefined) {
    laterMs += 1_000;
    await new Promise((resolve) => setImmediate(resolve));
    payload = await other.unseal('session', text, nowMs).catch(() => undefined);
  }
  assert.deepEqual(payload, PAYLOAD);
});

test('a handle of a key that a newer wrapping key hides is not taken for invalid', { timeout: 120_000 }, async () => {
  const old = redisConfig((await redis).url);
  const wrappingKeys = [...redisConfig((await redis).url).wrappingKeys, ...old.wrappingKeys];
  const [there, here] = [await openRedis({ ...old, wrappingKeys }), await openRedis(old)];
  const other = await Sealer.open(redisKeyStore(here));
  const sealer = await Sealer.open(redisKeyStore(there));
  await sealer.rotate(HOUR);
  const text = await sealer.seal('session', PAYLOAD, Date.now() + HOUR);
  await assert.rejects(other.unseal('session', text, Date.now()), { code: 'store-unavailable' });
});

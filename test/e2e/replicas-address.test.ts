import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { NamespaceNetwork } from '../chaos/network.ts';
import { initialize, post, rpc } from '../downstream/client.ts';
import { freePort } from '../support/free-port.ts';
import { startGateway } from '../support/gateway.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const { missing } = NamespaceNetwork;
const OPTIONS = { timeout: 120_000, ...(missing === undefined ? {} : { skip: missing }) };
const KEY = 'a-key-of-ann-0123456789abcdef';
const HEADERS = { authorization: `Bearer ${KEY}` };

test('replicas on machines of their own reach each other without a setting', OPTIONS, async () => {
  await using network = await NamespaceNetwork.open();
  const place = { host: network.hostOf('Redis'), via: network.via('Redis') };
  await using redis = await RedisServer.startAt(await freePort(), place, '--protected-mode', 'no');
  const gateway = {
    auth: { apiKeys: [{ name: 'ann', sha256: hash('sha256', KEY) }] },
    redis: { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')] },
  };
  const start = async (n: number) =>
    await startGateway(
      { gateway: { ...gateway, listen: `${network.hostOf(n)}:${await freePort()}` } },
      { via: network.via(n) },
    );
  await using one = await start(0);
  await using two = await start(1);
  const statusOf = async (url: string, session: string) => (await post(url, rpc(1, 'ping'), session, HEADERS)).status;
  // Neither can take a session from the other one, which is alive.
  for (const [owner, other] of [
    [one, two],
    [two, one],
  ] as const) {
    const session = await initialize(owner.endpoint(), undefined, HEADERS);
    await waitUntil(async () => (await statusOf(other.endpoint(), session)) === 200);
    assert.equal(await statusOf(owner.endpoint(), session), 200);
  }
});

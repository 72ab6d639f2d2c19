import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { Cleanups } from '../../../src/compose/cleanups.ts';
import { joinReplicas, type SharedPlace } from '../../../src/compose/replicas/replicas.ts';
import { sharedAddresses } from '../../../src/compose/replicas/shared-addresses.ts';
import { Callers } from '../../../src/policy/callers.ts';
import { MemoryCounterTable } from '../../../src/store/memory/counter-table.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { MemoryPlacementTable } from '../../../src/store/memory/placement-table.ts';
import { MemoryRateTable } from '../../../src/store/memory/rate-table.ts';
import { openState } from '../../../src/store/open-state.ts';
import { unreadableMember } from '../../../src/store/placement-table.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const LEASE_MS = 100; // subject

const member = (process: string, address: string, nth = 1) => ({
  id: `${process}.${nth}`,
  process,
  address,
  version: '1',
});

/** Returns a function that shows members at a time, and returns the addresses that were reported since the last one. */
function watching() {
  let reported: string[] = [];
  const find = sharedAddresses(LEASE_MS, (address) => reported.push(address));
  return (nowMs: number, ...members: Parameters<typeof find>[0]): readonly string[] => {
    reported = [];
    find(members, nowMs);
    return reported;
  };
}

test('an address that living replicas share is reported once', () => {
  const see = watching();
  const [a, b, c] = [member('a', 'x:1'), member('b', 'x:1'), member('c', 'y:1')];
  const seen = Array.from({ length: 40 }, (_, at) => see(at * 20, a, b, c));
  assert.deepEqual(seen.flat(), ['x:1']);
  assert.deepEqual(seen.findIndex((one) => one.length > 0) * 20, 3 * LEASE_MS);
});

test('a replica that restarts or joins again at its address shares it with nobody', () => {
  const see = watching();
  const reported: string[] = [];
  for (let ms = 0; ms < 10_000; ms += 20) {
    // It lives for 200 ms, and its lease 100 ms longer.
    const process = Math.floor(ms / 200);
    const former = ms % 200 < 100 ? [member(String(process - 1), 'x:1')] : [];
    reported.push(...see(ms, ...former, member(String(process), 'x:1'), member('b', 'y:1', 1), member('b', 'y:1', 2)));
  }
  assert.deepEqual(reported, []);
});

test('members that stay while nobody renews a lease are not reported', () => {
  const see = watching();
  const [former, now] = [member('a', 'x:1'), member('b', 'x:1')];
  assert.deepEqual([see(0, former, now), see(60_000, former, now), see(60_020, now)].flat(), []);
});

test('replicas whose addresses cannot be read share none', () => {
  const see = watching();
  const unreadable = [unreadableMember('a.1'), unreadableMember('b.1')];
  assert.deepEqual(Array.from({ length: 40 }, (_, at) => see(at * 20, ...unreadable)).flat(), []);
});

test('each replica reports an address that it advertises with another one', TIMEOUT, async () => {
  await using closed = new Cleanups();
  const [placements, counters] = [new MemoryPlacementTable(2_000), new MemoryCounterTable(30_000)];
  const [keys, rates] = [new MemoryKeyStore(), new MemoryRateTable(ignore)];
  const events = { onWriteFailed: ignore, onFailing: ignore, onRecovered: ignore, onLimit: ignore, onRefused: ignore };
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-shared-addresses-'));
  closed.defer(() => rm(dir, { recursive: true, force: true }));
  const state = closed.use(await openState(dir, { mayOwn: false, events }));
  const surroundings = {
    metrics: createMetrics('test'),
    log: pino({ level: 'silent' }),
    callers: new Callers(ignore),
  };
  const joined = async (): Promise<readonly string[]> => {
    const reported: string[] = [];
    const place: SharedPlace = {
      kind: 'replica',
      listen: { host: '127.0.0.1', port: 0 },
      addressOf: () => 'gateway.example:7000',
      keys,
      placements,
      counters,
      rates,
      apiKeys: undefined,
      storesOf: () => ({ state, events: undefined }),
      onSharedAddress: (address) => reported.push(address),
    };
    const replicas = await joinReplicas(place, surroundings, new Cleanups());
    closed.defer(() => replicas.close());
    return reported;
  };
  for (const reported of [await joined(), await joined()]) {
    await waitUntil(() => reported.length > 0);
    assert.deepEqual(reported, ['gateway.example:7000']);
  }
});

function ignore(): void {}

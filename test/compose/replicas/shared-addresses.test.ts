import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { Cleanups } from '../../../src/compose/cleanups.ts';
import { joinProcesses } from '../../../src/compose/replicas/join-processes.ts';
import { SharedAddresses } from '../../../src/compose/replicas/shared-addresses.ts';
import { Callers } from '../../../src/policy/callers.ts';
import { InternalKeys } from '../../../src/replicas/internal-keys.ts';
import { freshKey } from '../../../src/store/key-store.ts';
import { MemoryCounterTable } from '../../../src/store/memory/counter-table.ts';
import { MemoryPlacementTable } from '../../../src/store/memory/placement-table.ts';
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
  const addresses = new SharedAddresses(LEASE_MS, (address) => reported.push(address));
  return (nowMs: number, ...members: Parameters<SharedAddresses['onMembers']>[0]): readonly string[] => {
    reported = [];
    addresses.onMembers(members, nowMs);
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

test('replicas that advertise one address are named in the log of each', TIMEOUT, async () => {
  await using cleanups = new Cleanups();
  const keys = new InternalKeys();
  keys.update([freshKey(Date.now())]);
  const [table, counterTable] = [new MemoryPlacementTable(2_000), new MemoryCounterTable(30_000)];
  const join = async (): Promise<readonly string[]> => {
    const lines: string[] = [];
    await joinProcesses({
      kind: 'replica',
      listen: { host: '127.0.0.1', port: 0 },
      addressOf: () => 'gateway.example:7000',
      keys,
      table,
      counterTable,
      metrics: createMetrics('test'),
      log: pino({ level: 'error' }, { write: (line) => void lines.push(line) }),
      callers: new Callers(() => undefined),
      onLimit: () => undefined,
      isEnded: () => Promise.resolve(false),
      cleanups,
    });
    return lines;
  };
  for (const lines of [await join(), await join()]) {
    await waitUntil(() => lines.length > 0);
    assert.match(lines.join(''), /"address":"gateway\.example:7000","msg":"several replicas have this address/);
  }
});

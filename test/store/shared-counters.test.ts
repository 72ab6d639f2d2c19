import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { CounterTable } from '../../src/store/counter-table.ts';
import { MemoryCounterTable } from '../../src/store/memory/counter-table.ts';
import { redisCounterTable } from '../../src/store/redis/counter-table.ts';
import { SharedCounters } from '../../src/store/shared-counters.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { openRedis, redisConfig, RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 600_000;

/** Takes units until one is refused. Returns their number. */
async function takeAll(counters: SharedCounters, name: string, limit: number): Promise<number> {
  let taken = 0;
  while (await counters.acquire(name, limit)) taken++;
  return taken;
}

function processesOf(table: MemoryCounterTable, count: number): readonly SharedCounters[] {
  return Array.from(
    { length: count },
    (_, n) => new SharedCounters({ table, process: `${n}`, processes: () => count, waitMs: PATIENCE_MS }),
  );
}

test('one process may use the whole limit, and asks once for a block', OPTIONS, async () => {
  const [one] = processesOf(new MemoryCounterTable(LONG_MS), 1);
  assert.ok(one !== undefined);
  let asked = 0;
  for (let n = 0; n < 640; n++) {
    const acquired = one.acquire('sessions', 640);
    if (acquired instanceof Promise) asked++;
    assert.equal(await acquired, true);
  }
  assert.equal(asked, 64);
  assert.equal(await one.acquire('sessions', 640), false);
  one.release('sessions');
  assert.equal(one.acquire('sessions', 640), true, 'it knows that there is room');
  await one.close();
});

test('processes do not exceed the limit together, and waste less than a block each', OPTIONS, async () => {
  const limit = 640;
  const processes = processesOf(new MemoryCounterTable(LONG_MS), 3);
  // Each has used one unit of a block of ten.
  for (const each of processes) assert.equal(await each.acquire('a', limit), true);
  const [first, ...others] = processes;
  assert.ok(first !== undefined);
  const taken = 1 + (await takeAll(first, 'a', limit));
  assert.equal(taken, limit - 2 * 10, 'the error is (n − 1) × (block − 1), and the units that the others use');
  for (const other of others) assert.equal(await takeAll(other, 'a', limit), 9);
  for (const each of processes) await each.close();
});

test('a process that was stopped for longer than its lease asks again', OPTIONS, async () => {
  const leaseMs = 1_000; // subject
  const [one] = processesOf(new MemoryCounterTable(leaseMs), 1);
  assert.ok(one !== undefined);
  assert.equal(await one.acquire('a', 640), true);
  assert.equal(one.acquire('a', 640), true, 'of the same block');
  // No timer runs meanwhile, as in a process that gets SIGSTOP.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, leaseMs + 100);
  const again = one.acquire('a', 640);
  assert.ok(again instanceof Promise);
  assert.equal(await again, true);
  assert.equal(one.acquire('a', 640), true);
  await one.close();
});

test('a unit that is asked for while leases are renewed is granted', OPTIONS, async () => {
  const memory = new MemoryCounterTable(LONG_MS);
  // Answers in a later turn, as a table over a network does.
  const table: CounterTable = {
    leaseMs: LONG_MS,
    lease: async (...asked) => {
      await turn();
      return await memory.lease(...asked);
    },
  };
  const one = new SharedCounters({ table, process: '1', processes: () => 1, waitMs: PATIENCE_MS });
  const acquired = one.acquire('a', 256);
  const renewed = one.renew();
  assert.equal(await acquired, true);
  await renewed;
  await one.close();
});

test('many requests at once do not exceed the limit', OPTIONS, async () => {
  const processes = processesOf(new MemoryCounterTable(LONG_MS), 2);
  const acquired = await Promise.all(
    Array.from({ length: 400 }, async (_, n) => (await processes[n % 2]?.acquire('a', 100)) ?? false),
  );
  assert.equal(acquired.filter(Boolean).length, 100);
  for (const each of processes) assert.equal(await takeAll(each, 'a', 100), 0);
  for (const each of processes) await each.close();
});

test('units that are given back can be used by other processes', OPTIONS, async () => {
  const [one, two] = processesOf(new MemoryCounterTable(LONG_MS), 2);
  assert.ok(one !== undefined && two !== undefined);
  assert.equal(await takeAll(one, 'a', 64), 64);
  assert.equal(await two.acquire('a', 64), false);
  for (let n = 0; n < 64; n++) one.release('a');
  await one.renew();
  assert.equal(await takeAll(two, 'a', 64), 64);
  await two.close();
  assert.equal(await takeAll(one, 'a', 64), 64);
  await one.close();
});

/** Returns a table in memory whose answers wait for a gate while it is closed. */
function gated(): { readonly table: CounterTable; readonly memory: MemoryCounterTable; gate: Promise<void> } {
  const memory = new MemoryCounterTable(LONG_MS);
  const made = {
    memory,
    gate: Promise.resolve(),
    table: {
      leaseMs: LONG_MS,
      lease: async (...args: Parameters<CounterTable['lease']>) => {
        const units = await memory.lease(...args);
        await made.gate;
        return units;
      },
    },
  };
  return made;
}

test('units that are being returned are not used any more', OPTIONS, async () => {
  const limit = 640;
  const made = gated();
  const one = new SharedCounters({ table: made.table, process: 'one', processes: () => 2, waitMs: PATIENCE_MS });
  const two = new SharedCounters({ table: made.memory, process: 'two', processes: () => 2 });
  assert.equal(await one.acquire('a', limit), true);
  one.release('a');
  const gate = Promise.withResolvers<void>();
  made.gate = gate.promise;
  const renewed = one.renew();
  assert.equal(await takeAll(two, 'a', limit), limit);
  const acquired = one.acquire('a', limit);
  gate.resolve();
  assert.equal(await acquired, false, 'the others have the whole limit');
  await renewed;
  await one.close();
  await two.close();
});

test('a process that closes returns also the units that it was about to get', OPTIONS, async () => {
  const made = gated();
  const one = new SharedCounters({ table: made.table, process: 'one', processes: () => 2, waitMs: PATIENCE_MS });
  const two = new SharedCounters({ table: made.memory, process: 'two', processes: () => 2 });
  const gate = Promise.withResolvers<void>();
  made.gate = gate.promise;
  const acquired = one.acquire('a', 640);
  const closed = one.close();
  gate.resolve();
  await acquired;
  one.release('a');
  await closed;
  assert.equal(await takeAll(two, 'a', 640), 640);
  await two.close();
});

// R12
test('a caller waits for a slow table for a bounded time, and gets its share', OPTIONS, async () => {
  const made = gated();
  const one = new SharedCounters({ table: made.table, process: 'one', processes: () => 4, waitMs: 50 });
  const gate = Promise.withResolvers<void>();
  made.gate = gate.promise;
  assert.equal(await takeAll(one, 'a', 8), 2);
  gate.resolve();
  await one.close();
});

// R12
test('without Redis each process uses its share, and what it has been granted', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const open = async (process: string) => {
    return new SharedCounters({
      table: redisCounterTable(await openRedis(config), 600),
      process,
      processes: () => 2,
      waitMs: PATIENCE_MS,
    });
  };
  const [one, two] = [await open('one'), await open('two')];
  for (let n = 0; n < 80; n++) assert.equal(await one.acquire('a', 100), true);
  await server.kill();
  assert.equal(await takeAll(one, 'a', 100), 0);
  assert.equal(await takeAll(two, 'a', 100), 50);
  await server.restart();
  await waitUntil(async () => {
    await one.renew();
    return one.acquire('b', 100);
  });
  assert.equal(one.used('a'), 80, 'units in use are not taken away');
  await one.close();
  await two.close();
});

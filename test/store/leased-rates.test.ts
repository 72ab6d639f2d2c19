import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import { type LimitName, LIMITS } from '../../src/limits.ts';
import { LeasedRates, type Wait } from '../../src/store/leased-rates.ts';
import { MemoryRateTable } from '../../src/store/memory/rate-table.ts';
import type { RateTable } from '../../src/store/rate-table.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const MINUTE_MS = 60_000;

interface Table extends RateTable {
  asked: number;
  isDown: boolean;
}

/** A table in memory that counts how often it is asked, and can be out of reach. */
function table(): Table {
  const memory = new MemoryRateTable(() => undefined);
  return {
    asked: 0,
    isDown: false,
    async take(counter, units, limit, windowMs) {
      this.asked++;
      if (this.isDown) throw new GatewayError('store-unavailable');
      return await memory.take(counter, units, limit, windowMs);
    },
  };
}

function process(shared: RateTable, processes = 1, reached: LimitName[] = []): LeasedRates {
  return new LeasedRates({ table: shared, processes: () => processes, onLimit: (limit) => reached.push(limit) });
}

/** Takes units until one is refused. Returns their number, at most `most`. */
async function drain(rates: LeasedRates, limit: number, most = 10_000): Promise<number> {
  for (let taken = 0; taken < most; taken++) {
    const waitMs: Wait = await rates.take('c', limit, MINUTE_MS);
    if (waitMs === undefined) continue;
    assert.ok(waitMs > 0 && waitMs <= MINUTE_MS);
    return taken;
  }
  return most;
}

test('a window grants its limit, and most units without asking the table', TIMEOUT, async () => {
  const shared = table();
  assert.equal(await drain(process(shared), 640), 640);
  assert.ok(shared.asked <= 65, `${shared.asked} times`);
  const { asked } = shared;
  assert.equal(await drain(process(shared), 640), 0);
  assert.equal(shared.asked, asked + 1);
});

test('a counter that is used up is not asked for again in its window', TIMEOUT, async () => {
  const shared = table();
  const rates = process(shared);
  await drain(rates, 3);
  const { asked } = shared;
  for (let n = 0; n < 100; n++) assert.ok(!(rates.take('c', 3, MINUTE_MS) instanceof Promise));
  assert.equal(shared.asked, asked);
});

test('all processes together keep the limit, and lose at most unused blocks', TIMEOUT, async () => {
  for (const limit of [1, 7, 64, 1_000]) {
    const shared = table();
    const processes = Array.from({ length: 4 }, () => process(shared, 4));
    // One unit in each, so that each has a block of its own.
    let taken = 0;
    for (const rates of processes) taken += await drain(rates, limit, 1);
    const [first] = processes;
    assert.ok(first !== undefined);
    taken += await drain(first, limit);
    const block = Math.max(1, Math.floor(limit / 64));
    assert.ok(taken <= limit && taken >= limit - 3 * (block - 1), `${taken} of ${limit}`);
    for (const rates of processes) taken += await drain(rates, limit);
    assert.equal(taken, limit);
  }
});

test('callers at the same time get no more than the limit', TIMEOUT, async () => {
  const rates = process(table());
  const all = await Promise.all(Array.from({ length: 50 }, async () => await rates.take('c', 20, MINUTE_MS)));
  assert.equal(all.filter((waitMs) => waitMs === undefined).length, 20);
});

// R12
test('without the table each process goes on with its share', TIMEOUT, async () => {
  const shared = table();
  shared.isDown = true;
  assert.equal(await drain(process(shared, 4), 100), 25);
  assert.equal(await drain(process(shared, 4), 2), 1, 'at least one');
  const rates = process(shared, 4);
  shared.isDown = false;
  // A block of one unit is on hand when the table fails.
  assert.equal(await drain(rates, 100, 10), 10);
  shared.isDown = true;
  assert.equal(await drain(rates, 100), 25);
});

test('a unit that was not used is given back', TIMEOUT, async () => {
  const rates = process(table());
  assert.equal(await rates.take('c', 1, MINUTE_MS), undefined);
  rates.undoTake('c')();
  rates.undoTake('unknown')();
  assert.equal(await rates.take('c', 1, MINUTE_MS), undefined);
  assert.notEqual(await rates.take('c', 1, MINUTE_MS), undefined);
});

test('a unit of a window that is over is not given back to the next one', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const rates = process(table());
  assert.equal(await rates.take('c', 1, MINUTE_MS), undefined);
  const undo = rates.undoTake('c');
  time.pass(MINUTE_MS + 1);
  assert.equal(await rates.take('c', 1, MINUTE_MS), undefined);
  undo();
  assert.notEqual(await rates.take('c', 1, MINUTE_MS), undefined);
});

test('another limit or window applies at once, also to a rate that is used up', TIMEOUT, async () => {
  const rates = process(table());
  const take = async (limit: number, windowMs: number) => await rates.take('c', limit, windowMs);
  for (let n = 0; n < 2; n++) assert.equal(await take(2, MINUTE_MS), undefined);
  assert.notEqual(await take(2, MINUTE_MS), undefined);
  assert.equal(await take(3, MINUTE_MS), undefined, 'a raised limit');
  for (let n = 0; n < 10; n++) await take(3, MINUTE_MS);
  assert.equal(await take(3, 1_000), undefined, 'a shorter window');
});

test('an answer for an earlier limit does not end the window of the new one', TIMEOUT, async () => {
  const answers: ((units: number) => void)[] = [];
  const slow: RateTable = {
    take: async () => {
      const { promise, resolve } = Promise.withResolvers<number>();
      answers.push(resolve);
      return { units: await promise, endsInMs: MINUTE_MS };
    },
  };
  const rates = process(slow);
  const earlier = rates.take('c', 1, MINUTE_MS);
  const later = rates.take('c', 2, MINUTE_MS);
  answers[0]?.(0);
  assert.notEqual(await earlier, undefined);
  answers[1]?.(1);
  assert.equal(await later, undefined);
});

test('limit rateCounters: a process keeps no more windows', TIMEOUT, async () => {
  const reached: LimitName[] = [];
  const none: RateTable = { take: async () => ({ units: 1, endsInMs: MINUTE_MS }) };
  const rates = process(none, 1, reached);
  for (let n = 0; n <= LIMITS.rateCounters; n++) await rates.take(`c${n}`, 1, MINUTE_MS);
  assert.deepEqual(reached, ['rateCounters']);
});

test('a clock that is set back does not make a window longer', TIMEOUT, async (t) => {
  const rates = process(table());
  assert.equal(await rates.take('c', 3, MINUTE_MS), undefined);
  const now = Date.now.bind(Date);
  t.mock.method(Date, 'now', () => now() - 60 * MINUTE_MS);
  assert.equal(await drain(rates, 3), 2);
});

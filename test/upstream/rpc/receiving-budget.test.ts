import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type ReceivedMessage, ReceivingBudget, UNCOUNTED_BYTES } from '../../../src/upstream/rpc/receiving-budget.ts';

const KIB = 1_024;
const LARGE = 100 * KIB;
const TOTAL = 400 * KIB;

/** A reader that reads as long as it may. */
interface Reader {
  readonly message: ReceivedMessage;
  isHeld: boolean;
}

class Readers {
  holds = 0;
  readonly budget: ReceivingBudget;

  /** @param bytesPerTurn Infinity where turns of the event loop are not the subject. */
  constructor(totalBytes = TOTAL, bytesPerTurn = Infinity) {
    this.budget = new ReceivingBudget(totalBytes, () => this.holds++, bytesPerTurn);
  }

  join(upstream: string): Reader {
    const reader: Reader = {
      isHeld: false,
      message: this.budget.join(upstream, {
        hold: () => {
          assert.equal(reader.isHeld, false, 'it is held once');
          reader.isHeld = true;
        },
        resume: () => {
          assert.equal(reader.isHeld, true, 'only a held reader is resumed');
          reader.isHeld = false;
        },
      }),
    };
    return reader;
  }

  /** Lets readers of an upstream receive as many bytes each. */
  receive(upstream: string, count: number, bytes: number): Reader[] {
    return Array.from({ length: count }, () => {
      const reader = this.join(upstream);
      reader.message.update(bytes);
      return reader;
    });
  }
}

const heldOf = (readers: readonly Reader[]): boolean[] => readers.map(({ isHeld }) => isHeld);

test('messages up to 64 KiB are not counted', () => {
  const readers = new Readers();
  const small = readers.receive('a', 100, UNCOUNTED_BYTES);
  assert.equal(readers.budget.bytes, 0);
  assert.ok(small.every(({ isHeld }) => !isHeld));
});

test('beyond the half of its upstream a reader waits, but not the oldest one', async () => {
  const readers = new Readers();
  const [first, second, third] = readers.receive('a', 3, LARGE);
  assert.ok(first !== undefined && second !== undefined && third !== undefined);
  assert.deepEqual(heldOf([first, second, third]), [false, true, true]);
  assert.equal(readers.budget.bytes, 3 * LARGE);
  assert.equal(readers.holds, 2);
  first.message.update(2 * LARGE);
  assert.deepEqual(heldOf([first, second, third]), [false, true, true]);
  first.message.update(0);
  assert.deepEqual(heldOf([second, third]), [true, true], 'none is resumed in the events of another one');
  await nextTurn();
  assert.deepEqual(heldOf([first, second, third]), [false, false, true], 'there is room for one more chunk');
  second.message.update(0);
  await nextTurn();
  assert.deepEqual(heldOf([second, third]), [false, false]);
  third.message.update(0);
  assert.equal(readers.budget.bytes, 0);
});

test('an upstream that sends slowly does not hold the readers of another one', () => {
  const readers = new Readers();
  const stalled = readers.receive('stalled', 3, LARGE);
  assert.deepEqual(heldOf(stalled), [false, true, true]);
  const [other] = readers.receive('other', 1, 6 * LARGE);
  assert.equal(other?.isHeld, false);
});

test('beyond twice the bound of oldest messages only the oldest of all is read', async () => {
  const readers = new Readers();
  const [oldest] = readers.receive('a', 1, 2 * TOTAL);
  const [other] = readers.receive('b', 1, LARGE);
  assert.ok(oldest !== undefined && other !== undefined);
  assert.deepEqual(heldOf([oldest, other]), [false, true]);
  oldest.message.update(3 * TOTAL);
  assert.equal(oldest.isHeld, false);
  oldest.message.update(0);
  await nextTurn();
  assert.equal(other.isHeld, false);
});

test('a reader that was held ends, and its next message is counted anew', async () => {
  const readers = new Readers();
  const all = readers.receive('a', 3, LARGE);
  const last = all.at(-1);
  assert.equal(last?.isHeld, true);
  last.message.update(0);
  assert.equal(last.isHeld, false);
  assert.equal(readers.budget.bytes, 2 * LARGE);
  last.message.update(LARGE);
  assert.equal(last.isHeld, true);
  for (const { message } of all) message.update(0);
  assert.equal(readers.budget.bytes, 0);
  await nextTurn();
  assert.ok(all.every(({ isHeld }) => !isHeld));
});

test('any order of chunks and ends keeps the bounds, and leaves no reader held', async () => {
  const readers = new Readers();
  const size = 10 * LARGE;
  let most = 0;
  for (let seed = 1; seed <= 200; seed++) {
    const open = ['a', 'b', 'c'].flatMap((upstream) => readers.receive(upstream, 5, LARGE));
    const sizes = new Map(open.map((reader) => [reader, LARGE]));
    let state = seed;
    while (sizes.size > 0) {
      state = (state * 48_271) % 2_147_483_647;
      if (![...sizes.keys()].some(({ isHeld }) => !isHeld) || state % 3 === 0) await nextTurn();
      const reading = [...sizes.keys()].filter(({ isHeld }) => !isHeld);
      const reader = reading[state % reading.length];
      assert.ok(reader !== undefined, 'one reader can always read');
      const bytes = (sizes.get(reader) ?? 0) + UNCOUNTED_BYTES;
      if (bytes >= size || state % 40 === 0) sizes.delete(reader);
      else sizes.set(reader, bytes);
      reader.message.update(sizes.get(reader) ?? 0);
      most = Math.max(most, readers.budget.bytes);
    }
    assert.equal(readers.budget.bytes, 0);
    assert.ok(open.every(({ isHeld }) => !isHeld));
  }
  const counted = 15 * LARGE;
  assert.ok(most <= 3 * TOTAL + size + counted, `${most} bytes`);
  assert.ok(most > TOTAL, 'the bound is reached');
});

test('beyond the bytes of a turn readers wait for later turns, in order', async () => {
  const readers = new Readers(Infinity, 3 * LARGE);
  const all = readers.receive('a', 8, LARGE);
  assert.deepEqual(heldOf(all), [false, false, true, true, true, true, true, true]);
  assert.equal(readers.holds, 0, 'there is room for all of them');
  await nextTurn();
  assert.deepEqual(heldOf(all), [false, false, false, false, false, true, true, true]);
  await nextTurn();
  assert.ok(all.every(({ isHeld }) => !isHeld));
});

test('a large message that is passed on counts for its turn', async () => {
  const readers = new Readers(Infinity, 3 * LARGE);
  const [whole, other] = readers.receive('a', 2, LARGE);
  assert.ok(whole !== undefined && other !== undefined);
  await nextTurn();
  whole.message.update(2 * LARGE);
  whole.message.update(0);
  other.message.update(LARGE + 1);
  assert.equal(other.isHeld, true);
  await nextTurn();
  assert.equal(other.isHeld, false);
});

test('an event that is passed on counts for its turn, though the next has begun', async () => {
  const readers = new Readers(Infinity, 3 * LARGE);
  const [stream, other] = readers.receive('a', 2, LARGE);
  assert.ok(stream !== undefined && other !== undefined);
  await nextTurn();
  stream.message.update(2 * LARGE);
  stream.message.update(UNCOUNTED_BYTES + 1);
  other.message.update(LARGE + 1);
  assert.deepEqual(heldOf([stream, other]), [true, true]);
  await nextTurn();
  assert.deepEqual(heldOf([stream, other]), [false, false]);
});

test('a message larger than the bytes of a turn is read, one chunk in each turn', async () => {
  const readers = new Readers(Infinity, LARGE);
  const [large] = readers.receive('a', 1, 5 * LARGE);
  assert.ok(large !== undefined);
  for (let bytes = 6 * LARGE; bytes < 12 * LARGE; bytes += LARGE) {
    assert.equal(large.isHeld, true);
    await nextTurn();
    assert.equal(large.isHeld, false);
    large.message.update(bytes);
  }
  large.message.update(0);
  assert.equal(large.isHeld, false, 'its next message is read at once');
});

test('a reader whose turn has come waits on if its room is gone', async () => {
  const readers = new Readers(TOTAL, KIB);
  const [oldest, second] = readers.receive('a', 2, 80 * KIB);
  assert.ok(oldest !== undefined && second !== undefined);
  assert.equal(readers.holds, 0, 'both wait for their turn only');
  // A chunk that had arrived before the reader was held.
  oldest.message.update(150 * KIB);
  await nextTurn();
  await nextTurn();
  assert.deepEqual(heldOf([oldest, second]), [false, true]);
  assert.equal(readers.holds, 1);
  oldest.message.update(0);
  await nextTurn();
  assert.equal(second.isHeld, false);
});

test('the next event of a stream gives the room of the one before to others', async () => {
  const readers = new Readers();
  const [stream, other] = readers.receive('a', 2, LARGE);
  assert.ok(stream !== undefined && other !== undefined);
  assert.deepEqual(heldOf([stream, other]), [false, true]);
  stream.message.update(UNCOUNTED_BYTES + 1);
  await nextTurn();
  assert.equal(other.isHeld, false);
});

test('readers that get room at the same time take turns', async () => {
  const readers = new Readers(40 * LARGE, 3 * LARGE);
  const [first] = readers.receive('a', 1, 20 * LARGE);
  const others = readers.receive('a', 9, LARGE);
  assert.ok(first !== undefined && others.every(({ isHeld }) => isHeld));
  first.message.update(0);
  await nextTurn();
  assert.equal(others.filter(({ isHeld }) => !isHeld).length, 3);
  await nextTurn();
  assert.equal(others.filter(({ isHeld }) => !isHeld).length, 6);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ByteAccount, ByteBudget, type ByteHolder } from '../../../src/downstream/memory/byte-budget.ts';
import { measureLeftBytes } from '../../support/single-threaded.ts';

/** Returns a holder that sheds the wanted bytes, or none if it is `isStubborn`. */
function holderOf(budget: ByteBudget, principal: string, isStubborn = false) {
  let bytes = 0;
  let account: ByteAccount | undefined;
  const holder: ByteHolder = {
    get heldBytes() {
      return bytes;
    },
    shed(wanted) {
      const given = isStubborn ? 0 : Math.min(wanted, bytes);
      bytes -= given;
      account?.subtract(given);
    },
  };
  account = budget.join(principal, holder);
  const joined = account;
  return {
    get bytes() {
      return bytes;
    },
    add(more: number) {
      bytes += more;
      joined.add(more);
    },
    leave() {
      joined.leave();
    },
  };
}

function budgetOf(totalBytes: number, principalBytes: number) {
  const seen = { sheds: 0 };
  return { budget: new ByteBudget({ totalBytes, principalBytes }, () => seen.sheds++), seen };
}

// N-24
test('within the bounds no holder sheds', () => {
  const { budget, seen } = budgetOf(100, 50);
  holderOf(budget, 'alice').add(50);
  holderOf(budget, 'bob').add(50);
  assert.deepEqual([budget.bytes, seen.sheds], [100, 0]);
});

// N-24
test('beyond the bound of a principal its biggest holder sheds', () => {
  const { budget, seen } = budgetOf(1_000, 50);
  const [small, big] = [holderOf(budget, 'alice'), holderOf(budget, 'alice')];
  const other = holderOf(budget, 'bob');
  other.add(50);
  big.add(40);
  small.add(11);
  assert.deepEqual([small.bytes, big.bytes, other.bytes], [11, 35, 50]);
  assert.deepEqual([budget.bytes, seen.sheds], [96, 1]);
});

// N-24
test('beyond the total the principal with the most bytes sheds', () => {
  const { budget } = budgetOf(100, 80);
  const [alice, bob] = [holderOf(budget, 'alice'), holderOf(budget, 'bob')];
  alice.add(70);
  bob.add(31);
  assert.equal(bob.bytes, 31);
  assert.ok(alice.bytes < 70 && budget.bytes <= 100, `${alice.bytes} of ${budget.bytes}`);
});

// N-24
test('a holder that cannot shed does not block the others', () => {
  const { budget } = budgetOf(100, 100);
  const stubborn = holderOf(budget, 'alice', true);
  stubborn.add(101);
  assert.equal(budget.bytes, 101);
  holderOf(budget, 'bob').add(10);
  assert.equal(stubborn.bytes, 101);
});

// N-24
test('a holder that leaves gives its bytes back', () => {
  const { budget } = budgetOf(100, 100);
  const alice = holderOf(budget, 'alice');
  alice.add(60);
  alice.leave();
  assert.equal(budget.bytes, 0);
});

// N-24
test('a holder that leaves twice gives its bytes back once, and keeps none afterwards', () => {
  const { budget } = budgetOf(100, 100);
  holderOf(budget, 'alice').add(20);
  const left = holderOf(budget, 'alice');
  left.add(60);
  left.leave();
  left.leave();
  left.add(70);
  left.leave();
  assert.equal(budget.bytes, 20);
});

// N-60
test('holders that left do not survive a collection of young objects', () => {
  const { removedBytes, leftBytes } = measureLeftBytes('left-holders.ts');
  assert.ok(leftBytes < removedBytes / 4, `${leftBytes} bytes are left of ${removedBytes}`);
});

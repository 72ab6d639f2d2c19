import assert from 'node:assert/strict';
import { test } from 'node:test';
import { workTurn } from '../src/work-turn.ts';
import { stopTime } from './support/stopped-time.ts';

// N-62
test('many simultaneous pieces of work are spread over turns of the event loop', async (t) => {
  // A turn is over after some ms, too.
  stopTime(t);
  let turn = 0;
  const count = () => {
    turn++;
    counter = setImmediate(count);
  };
  let counter = setImmediate(count);
  const pieces = Array.from({ length: 8 }, (_, piece) => piece);
  const ran: { readonly piece: number; readonly turn: number }[] = [];
  await Promise.all(pieces.map((piece) => workTurn().then(() => ran.push({ piece, turn }))));
  clearImmediate(counter);
  assert.deepEqual(
    ran.map(({ piece }) => piece),
    pieces,
  );
  // The first four begin at once.
  assert.deepEqual(new Set(ran.slice(0, 4).map((each) => each.turn)), new Set([0]));
  assert.equal(new Set(ran.slice(3).map((each) => each.turn)).size, 5);
});

// N-62
test('work in a later turn of the event loop begins at once', async (t) => {
  stopTime(t);
  await new Promise((resolve) => setImmediate(resolve));
  let hasBegun = false;
  void workTurn().then(() => (hasBegun = true));
  await Promise.resolve();
  await Promise.resolve();
  assert.ok(hasBegun);
});

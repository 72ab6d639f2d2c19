import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ownTurn } from '../src/own-turn.ts';

test('N-62 work that comes at once gets a turn of the event loop each, in order', async () => {
  let turn = 0;
  const count = () => {
    turn++;
    counter = setImmediate(count);
  };
  let counter = setImmediate(count);
  const ran: { readonly piece: number; readonly turn: number }[] = [];
  await Promise.all([0, 1, 2].map((piece) => ownTurn().then(() => ran.push({ piece, turn }))));
  clearImmediate(counter);
  assert.deepEqual(
    ran.map(({ piece }) => piece),
    [0, 1, 2],
  );
  assert.equal(new Set(ran.map((each) => each.turn)).size, 3);
});

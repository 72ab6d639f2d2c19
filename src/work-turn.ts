/** Pieces of work, and the time since the first, after which others wait for the next turn of the event loop. */
const PIECES = 4;
const SLICE_MS = 10;

const waiting: (() => void)[] = [];
/** Of this turn of the event loop; undefined where no work has begun in it. */
let turn: { readonly beganMs: number; pieces: number } | undefined;

/**
 * Resolves when a piece of work may begin: at once where little work has begun in this turn of the event loop, else in a later
 * turn of its own, in the order of the calls. Many upstreams bring such work together, and requests are served in between.
 */
export function workTurn(): Promise<void> {
  if (turn === undefined) beginTurn();
  else if (waiting.length > 0 || turn.pieces >= PIECES || performance.now() - turn.beganMs >= SLICE_MS)
    return new Promise((resolve) => waiting.push(resolve));
  else turn.pieces++;
  return Promise.resolve();
}

function beginTurn(): void {
  turn = { beganMs: performance.now(), pieces: 1 };
  setImmediate(endTurn);
}

function endTurn(): void {
  turn = undefined;
  const next = waiting.shift();
  if (next === undefined) return;
  beginTurn();
  next();
}

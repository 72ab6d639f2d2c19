import { setImmediate as nextTurn } from 'node:timers/promises';

/** Number of pieces of work, after which further pieces wait for a later turn of the event loop. */
const PIECES_PER_TURN = 4;
/** The time of one turn of the event loop, so that requests are served between two turns. */
const SLICE_MS = 10;

const waiters: (() => void)[] = [];
/** The work of this turn of the event loop; undefined if none has begun in it. */
let currentTurn: { readonly beganMs: number; pieces: number } | undefined;

/**
 * Waits for a turn of the event loop with capacity left. Callers are served in order. So requests are served between the lists of many
 * upstreams.
 */
export function workTurn(): Promise<void> {
  if (currentTurn === undefined) beginTurn();
  else if (
    waiters.length > 0 ||
    currentTurn.pieces >= PIECES_PER_TURN ||
    performance.now() - currentTurn.beganMs >= SLICE_MS
  )
    return new Promise((resolve) => waiters.push(resolve));
  else currentTurn.pieces++;
  return Promise.resolve();
}

function beginTurn(): void {
  currentTurn = { beganMs: performance.now(), pieces: 1 };
  setImmediate(endTurn);
}

function endTurn(): void {
  currentTurn = undefined;
  const next = waiters.shift();
  if (next === undefined) return;
  beginTurn();
  next();
}

/** Runs the work for each item, in order, and yields to the event loop after each slice of time. */
export async function inSlices<T>(items: Iterable<T>, work: (item: T) => void): Promise<void> {
  let beganMs = performance.now();
  for (const item of items) {
    if (performance.now() - beganMs > SLICE_MS) {
      await nextTurn();
      beganMs = performance.now();
    }
    work(item);
  }
}

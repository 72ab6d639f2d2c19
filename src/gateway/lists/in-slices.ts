import { setImmediate as nextTurn } from 'node:timers/promises';

/** The time of one turn of the event loop, so that requests are served between two turns. */
const SLICE_MS = 10;

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

import { setImmediate as nextTurn } from 'node:timers/promises';

let last = Promise.resolve();

/**
 * Resolves in a turn of the event loop in which no other caller goes on, in the order of the calls. Pieces of work that many
 * upstreams bring at once wait here for each other, so that requests are served between two of them.
 */
export function ownTurn(): Promise<void> {
  last = last.then(() => nextTurn());
  return last;
}

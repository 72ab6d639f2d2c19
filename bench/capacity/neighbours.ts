import { pinned, Program } from '../program.ts';
import type { Place } from './stage.ts';

const BUSY = [process.execPath, '-e', 'for (;;);'];

/**
 * Starts programs that use the core of the gateway all the time. The gateway gets its part of the core: with three of them a quarter. So clients and
 * upstream on the other core, which cost as much as the gateway, can overload it.
 */
export async function startNeighbours({ dir, subjectCore }: Place, count: number): Promise<AsyncDisposable> {
  await using stack = new AsyncDisposableStack();
  for (let index = 1; index <= count; index++) {
    stack.use(await Program.start(`neighbour-${index}`, pinned(subjectCore, BUSY), dir));
  }
  return stack.move();
}

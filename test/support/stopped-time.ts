import { syncBuiltinESMExports } from 'node:module';
import type { TestContext } from 'node:test';
import { waitUntil } from './wait-until.ts';

const FLOW_STEP_MS = 2;

// Tests replace timers after this import.
const [repeat, stopRepeating] = [setInterval, clearInterval];

/** The time of this process, which passes only when a test says so. */
export interface StoppedTime {
  /** Lets this much time pass, with the timers that are due. */
  pass(ms: number): void;
  /** Lets time pass in steps until a promise settles, and returns its value. Other work goes on between the steps. */
  passUntil<T>(promise: Promise<T>, stepMs: number): Promise<T>;
  /**
   * Lets time pass by itself: this much every 2 ms, and no more after a stall of this process. For tests of processes, whose
   * answers come in real time.
   */
  flow(stepMs: number): void;
}

/**
 * Stops the clocks and the timers of this process until the end of the test. The waits of `test/support`, sockets, files and
 * other processes go on.
 */
export function stopTime(t: TestContext): StoppedTime {
  // Whole milliseconds, as timers have them: a timer whose due time is not reached begins again at once.
  const aheadMs = Math.ceil(performance.now()) - Date.now();
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: Date.now() });
  t.mock.method(performance, 'now', () => Date.now() + aheadMs);
  t.mock.method(AbortSignal, 'timeout', (ms: number) => {
    const ended = new AbortController();
    setTimeout(() => ended.abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')), ms);
    return ended.signal;
  });
  // Sources import `setTimeout` of `node:timers/promises` by its name.
  syncBuiltinESMExports();
  let flowing: NodeJS.Timeout | undefined;
  t.after(() => {
    stopRepeating(flowing);
    t.mock.reset();
    syncBuiltinESMExports();
  });
  const pass = (ms: number) => t.mock.timers.tick(ms);
  return {
    pass,
    flow: (stepMs) => {
      flowing = repeat(() => pass(stepMs), FLOW_STEP_MS);
    },
    passUntil: async (promise, stepMs) => {
      let isSettled = false;
      const settle = () => (isSettled = true);
      promise.then(settle, settle);
      await waitUntil(() => {
        if (!isSettled) pass(stepMs);
        return isSettled;
      });
      return await promise;
    },
  };
}

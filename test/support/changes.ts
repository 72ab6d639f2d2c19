import assert from 'node:assert/strict';
import { PATIENCE_MS } from './patience.ts';

// A test may replace timers after this import.
const [schedule, unschedule] = [setTimeout, clearTimeout];

/** Announces changes of a test double to the tests that wait for them. */
export class Changes {
  #waiting: (() => void)[] = [];

  /** Lets every waiting test look again. */
  announce(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resume of waiting) resume();
  }

  /** Resolves with the first defined value of `found`, which runs again after each change. Bounded in time. */
  async until<T>(found: () => T | undefined): Promise<T> {
    let isLate = false;
    const timer = schedule(() => {
      isLate = true;
      this.announce();
    }, PATIENCE_MS);
    try {
      for (;;) {
        const value = found();
        if (value !== undefined) return value;
        assert.ok(!isLate, `not within ${PATIENCE_MS} ms: ${found.toString()}`);
        await new Promise<void>((resolve) => {
          this.#waiting.push(resolve);
        });
      }
    } finally {
      unschedule(timer);
    }
  }
}

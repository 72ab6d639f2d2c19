import assert from 'node:assert/strict';

/** Longest wait for a change. Changes come at once, or after a backoff of the gateway; a loaded machine takes longer. */
const UNTIL_MS = 60_000;

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
    const timer = setTimeout(() => {
      isLate = true;
      this.announce();
    }, UNTIL_MS);
    try {
      for (;;) {
        const value = found();
        if (value !== undefined) return value;
        assert.ok(!isLate, `not within ${UNTIL_MS} ms: ${found.toString()}`);
        await new Promise<void>((resolve) => {
          this.#waiting.push(resolve);
        });
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

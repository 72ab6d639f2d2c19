import { PATIENCE_MS } from './patience.ts';

/** The pause between two looks. Looks without a pause keep a core busy, which the awaited work may need. */
const POLL_MS = 2;

// A test may replace timers and clocks after this import.
const schedule = setTimeout;
const nowMs = performance.now.bind(performance);

/**
 * Waits until a condition holds. Works beside mocked timers.
 *
 * @throws {Error} with the source of the condition, if it does not hold in time.
 */
export async function waitUntil(holds: () => boolean | Promise<boolean>): Promise<void> {
  const lateMs = nowMs() + PATIENCE_MS;
  while (!(await holds())) {
    if (nowMs() > lateMs) throw new Error(`does not hold after ${PATIENCE_MS} ms: ${String(holds)}`);
    await new Promise((resolve) => {
      schedule(resolve, POLL_MS);
    });
  }
}

const PATIENCE_MS = 20_000;

/**
 * Waits until a condition holds, and checks it in each turn of the event loop. No timer is involved, so a test may replace
 * timers.
 *
 * @throws {Error} with the source of the condition, if it does not hold in time.
 */
export async function waitUntil(holds: () => boolean | Promise<boolean>): Promise<void> {
  const lateMs = performance.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (performance.now() > lateMs) throw new Error(`does not hold after ${PATIENCE_MS} ms: ${String(holds)}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

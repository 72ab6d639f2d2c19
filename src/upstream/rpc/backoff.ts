const FIRST_MS = 250;
const LONGEST_MS = 30_000;

/**
 * Returns the pause before a retry, in milliseconds.
 *
 * @param attempt number of the retry; the first is 1.
 * @param random in [0, 1): shortens the pause by up to a quarter, so that many gateways do not reconnect at the same time.
 */
export function backoffMs(attempt: number, random: number): number {
  const full = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, attempt - 1));
  return Math.round(full * (1 - random / 4));
}

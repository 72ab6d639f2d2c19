const FIRST_MS = 250;
const LONGEST_MS = 30_000;

/**
 * How long to wait before attempt number `attempt` (the first retry is 1), in milliseconds.
 *
 * @param random in [0, 1): up to a quarter is taken off, so that many gateways do not come back at once.
 */
export function backoffMs(attempt: number, random: number): number {
  const full = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, attempt - 1));
  return Math.round(full * (1 - random / 4));
}

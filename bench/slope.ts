/** A reading of a figure. */
export interface Reading {
  readonly atMs: number;
  readonly value: number;
}

/** The growth of a figure, with the interval that holds the true slope with a probability of 95 %. */
export interface Slope {
  readonly perHour: number;
  readonly low: number;
  readonly high: number;
  /** The mean of the figure, to compare the slope with. */
  readonly mean: number;
  readonly readings: number;
  /** True if the interval does not hold 0. */
  readonly isDistinct: boolean;
}

const HOUR_MS = 3_600_000;

/** Returns the 97.5 % quantile of Student's distribution, by the expansion of Cornish and Fisher; 0.5 % too small for 5 degrees of freedom. */
function studentQuantile(degrees: number): number {
  const normal = 1.959964;
  return (
    normal +
    (normal ** 3 + normal) / (4 * degrees) +
    (5 * normal ** 5 + 16 * normal ** 3 + 3 * normal) / (96 * degrees ** 2)
  );
}

/** Returns the correlation of each number with the one before it, of numbers with the mean 0; 0 if all are 0. */
function correlationWithNext(numbers: readonly number[]): number {
  const squares = numbers.reduce((sum, number) => sum + number ** 2, 0);
  const products = numbers.reduce((sum, number, index) => sum + number * (numbers[index - 1] ?? 0), 0);
  return squares === 0 ? 0 : products / squares;
}

/**
 * Fits a line by least squares. Consecutive readings of a process resemble each other, which makes the usual interval too narrow; it is
 * widened by the correlation of each residual with the next.
 *
 * @returns undefined for fewer than five readings.
 */
export function slopeOf(readings: readonly Reading[]): Slope | undefined {
  const count = readings.length;
  if (count < 5) return undefined;
  const meanMs = readings.reduce((sum, { atMs }) => sum + atMs, 0) / count;
  const mean = readings.reduce((sum, { value }) => sum + value, 0) / count;
  const spread = readings.reduce((sum, { atMs }) => sum + (atMs - meanMs) ** 2, 0);
  const slope = readings.reduce((sum, { atMs, value }) => sum + (atMs - meanMs) * (value - mean), 0) / spread;
  const residuals = readings.map(({ atMs, value }) => value - mean - slope * (atMs - meanMs));
  const squares = residuals.reduce((sum, residual) => sum + residual ** 2, 0);
  const correlation = Math.min(0.95, Math.max(0, correlationWithNext(residuals)));
  const widening = Math.sqrt((1 + correlation) / (1 - correlation));
  const error = Math.sqrt(squares / (count - 2) / spread) * studentQuantile(count - 2) * widening;
  const [low, high] = [(slope - error) * HOUR_MS, (slope + error) * HOUR_MS];
  return { perHour: slope * HOUR_MS, low, high, mean, readings: count, isDistinct: low > 0 || high < 0 };
}

/** Returns the value that `share` of the values are below; NaN where there is none. @param sorted ascending. */
export function percentile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

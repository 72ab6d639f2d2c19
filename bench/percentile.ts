/** Returns the value below which `share` of the values are; NaN if there are none. @param sorted ascending. */
export function percentile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

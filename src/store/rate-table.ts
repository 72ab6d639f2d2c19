/** Units that were taken, and the end of their window. */
export interface TakenUnits {
  /** As many as wanted, or fewer if the limit is reached; 0 if there are none. */
  readonly units: number;
  /** The time until the window ends, in ms; greater than 0. */
  readonly endsInMs: number;
}

/** Counts of all processes that bound how often something happens. Each counter begins a window with its first unit. */
export interface RateTable {
  /**
   * Takes units of the current window. All processes together get at most the limit in a window.
   *
   * @param windowMs a multiple of 1000. A counter has the same limit and window in all processes.
   * @returns rejects with `store-unavailable` if the table cannot be reached.
   */
  take(counter: string, units: number, limit: number, windowMs: number): Promise<TakenUnits>;
}

/** Counts of all processes, which lease units of them for a time. */
export interface CounterTable {
  /** The time that leased units stay those of a process, in ms. */
  readonly leaseMs: number;
  /**
   * Changes the units that a process has of a counter, and renews their lease. The units of all processes together do not exceed the limit.
   *
   * @param wanted the units that the process wants to have in all. Fewer than it has returns the others.
   * @returns the units that it has then. Rejects with `store-unavailable` if the table cannot be reached.
   */
  lease(counter: string, process: string, wanted: number, limit: number): Promise<number>;
}

/** Runs all jobs in order, a number of them at a time. @throws the error of a job, after those in flight have ended. */
export async function inLanes(jobs: readonly (() => Promise<void>)[], lanes: number): Promise<void> {
  const queue = jobs.values();
  async function lane(): Promise<void> {
    for (const job of queue) await job();
  }
  const ended = await Promise.allSettled(Array.from({ length: lanes }, lane));
  for (const one of ended) if (one.status === 'rejected') throw one.reason;
}

import * as z from 'zod';

/** The task of a process that holds idle streams. */
const IDLE_JOB = z.object({
  url: z.url(),
  authorizations: z.array(z.string()).min(1).readonly(),
  /** Streams by kind, each over a connection of its own. */
  gets: z.int().nonnegative(),
  listens: z.int().nonnegative(),
});

export type IdleJob = z.infer<typeof IDLE_JOB>;

/** @throws {z.ZodError} */
export function parseIdleJob(text: string | undefined): IdleJob {
  return IDLE_JOB.parse(JSON.parse(text ?? 'null'));
}

const IDLE_REPORT = z.object({
  open: z.number(),
  /** Streams that ended by themselves, by reason. */
  dropped: z.record(z.string(), z.number()),
  /** Chunks of data, which are nearly all comments. */
  chunks: z.number(),
  bytes: z.number(),
  /** The longest time without data on an open stream. */
  longestSilenceMs: z.number(),
});

export type IdleReport = z.infer<typeof IDLE_REPORT>;

/** @throws {z.ZodError} */
export function readIdleReport(reported: unknown): IdleReport {
  return IDLE_REPORT.parse(reported);
}

/** The task of a process that reads slowly. */
const SLOW_JOB = z.object({
  url: z.url(),
  authorizations: z.array(z.string()).min(1).readonly(),
  readers: z.array(
    z.object({
      count: z.int().positive(),
      /** The published name of the tool that they call, again after each answer. */
      tool: z.string(),
      bytesPerSecond: z.int().positive(),
    }),
  ),
});

export type SlowJob = z.infer<typeof SLOW_JOB>;

/** @throws {z.ZodError} */
export function parseSlowJob(text: string | undefined): SlowJob {
  return SLOW_JOB.parse(JSON.parse(text ?? 'null'));
}

const SLOW_REPORT = z.object({
  /** Calls that were begun, by the tool. */
  begun: z.record(z.string(), z.number()),
  /** Calls whose answer was read to its end, by the tool. */
  whole: z.record(z.string(), z.number()),
  /** Connections that the gateway closed before the answer was read, and refusals. */
  ended: z.record(z.string(), z.number()),
  megabytes: z.number(),
});

export type SlowReport = z.infer<typeof SLOW_REPORT>;

/** @throws {z.ZodError} */
export function readSlowReport(reported: unknown): SlowReport {
  return SLOW_REPORT.parse(reported);
}

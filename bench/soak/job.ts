import * as z from 'zod';

/** The task of the clients of a soak. */
const JOB = z.object({
  url: z.url(),
  sseUrl: z.url(),
  authorizations: z.array(z.string()).min(1).readonly(),
  /** Calls a second of all clients together, without those of short sessions. */
  ratePerSecond: z.number().positive(),
  seed: z.int(),
});

export type SoakJob = z.infer<typeof JOB>;

/** @throws {z.ZodError} */
export function parseSoakJob(text: string | undefined): SoakJob {
  return JOB.parse(JSON.parse(text ?? 'null'));
}

/** The upstreams of a soak by id. `slow` answers its calls after {@link SLOW_MS}. */
export const UPSTREAMS = ['remote', 'modern', 'shared'] as const;
/** A stdio upstream with a process for each session. */
export const OWN_PROCESS = 'process';
export const SLOW = 'slow';
/** An upstream that the reloads add and remove. */
export const COMING = 'coming';
export const SLOW_MS = 3_000;

import * as z from 'zod';
import { CALLED_TOOLS } from '../answers.ts';
import { REVISIONS } from '../dialect.ts';

/** The task of a process that calls at a given rate. */
const JOB = z.object({
  url: z.url(),
  /** The credentials, in turn over the connections. Empty: none. */
  authorizations: z.array(z.string()).readonly(),
  revision: z.enum(REVISIONS),
  tool: z.enum(CALLED_TOOLS),
  toolPrefix: z.string(),
  /** Connections, each with a session of its own if the revision has sessions. */
  connections: z.int().positive(),
});

export type CallerJob = z.infer<typeof JOB>;

/** @throws {z.ZodError} */
export function parseCallerJob(text: string | undefined): CallerJob {
  return JOB.parse(JSON.parse(text ?? 'null'));
}

/** A message to the process: how long, and at which rate. */
const TURN = z.object({ ms: z.number().positive(), ratePerSecond: z.number().positive() });

/** @throws {z.ZodError} */
export function readCallerTurn(message: unknown): z.infer<typeof TURN> {
  return TURN.parse(message);
}

const SECOND = z.object({ answered: z.number(), refused: z.number(), p99Ms: z.number() });

/** The report of a turn. Times run from the moment at which a call was due, so that a late caller does not hide a slow gateway. */
const REPORT = z.object({
  /** Calls that were due. */
  due: z.number(),
  answered: z.number(),
  answeredPerSecond: z.number(),
  p50Ms: z.number(),
  p95Ms: z.number(),
  p99Ms: z.number(),
  maxMs: z.number(),
  /** Calls that were answered with an error, by its text. */
  refused: z.record(z.string(), z.number()),
  /** Time from the sending of a refused call to the refusal. */
  refusalP50Ms: z.number(),
  refusalP99Ms: z.number(),
  /** Connections that were lost, by reason. */
  lost: z.record(z.string(), z.number()),
  /** Calls that were not sent within a second, since every connection had a call in flight. */
  unsent: z.number(),
  /** Calls without an answer 30 s after the end of the turn. */
  unanswered: z.number(),
  seconds: z.array(SECOND),
});

export type CallerReport = z.infer<typeof REPORT>;

/** @throws {z.ZodError} */
export function readCallerReport(reported: unknown): CallerReport {
  return REPORT.parse(reported);
}

import * as z from 'zod';
import { CALLED_TOOLS } from './answers.ts';
import { REVISIONS } from './dialect.ts';

/** The task of one process of the load generator. */
const JOB = z.object({
  url: z.url(),
  /** The endpoint that the requests in sessions go to, if it is not that of the handshakes. */
  askUrl: z.url().optional(),
  /** The credentials of every request. */
  authorization: z.string().optional(),
  revision: z.enum(REVISIONS),
  ask: z.discriminatedUnion('method', [
    z.object({ method: z.literal('tools/list') }),
    z.object({ method: z.literal('tools/call'), tool: z.enum(CALLED_TOOLS) }),
  ]),
  toolPrefix: z.string(),
  connections: z.int().positive(),
  /**
   * Sessions in total, distributed over the connections, each of which uses its sessions in turn. Default: one per
   * connection.
   */
  sessions: z.int().positive().optional(),
  /** Counts errors in answers instead of failing the run. */
  countsRefusals: z.boolean().optional(),
  warmMs: z.number(),
  measureMs: z.number(),
  ratePerSecond: z.number().positive().optional(),
  /** Plays a round for each message of the parent process, on connections that stay open. */
  isSteady: z.boolean().optional(),
  /** The processes under test. */
  pids: z.array(z.int()),
});

export type Job = z.infer<typeof JOB>;

/** The report of one round. */
const ROUND = z.object({
  requests: z.number(),
  perSecond: z.number(),
  /** CPU time of the processes under test per request. */
  cpuUs: z.number(),
  p50Us: z.number(),
  p99Us: z.number(),
  rssMb: z.number(),
  peakMb: z.number(),
  pssMb: z.number(),
  /** Number of requests that were answered with an error. */
  refusals: z.number(),
  /** Time that the host withheld from the machine meanwhile, which counts as CPU time of the processes. */
  stolenMs: z.number(),
  /** The form of the answers, which the subject chooses. */
  answersAs: z.enum(['json', 'sse', 'both']),
});

export type Round = z.infer<typeof ROUND>;

/** @throws {z.ZodError} */
export function parseJob(text: string | undefined): Job {
  return JOB.parse(JSON.parse(text ?? 'null'));
}

/** A message to a steady load generator: the length of its next round. */
const TURN = z.object({ ms: z.number().positive() });

/** @throws {z.ZodError} */
export function readTurn(message: unknown): z.infer<typeof TURN> {
  return TURN.parse(message);
}

/** @throws {z.ZodError} */
export function readRound(reported: unknown): Round {
  return ROUND.parse(reported);
}

/** @param log of the load generator: its last line is the report. @throws {z.ZodError} */
export function parseRound(log: string): Round {
  return ROUND.parse(JSON.parse(log.trim().split('\n').at(-1) ?? 'null'));
}

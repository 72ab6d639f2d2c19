import { z } from 'zod';
import type { PipedAuditSettings } from '../../audit/audit-pipe.ts';
import type { Config, LogLevel } from '../../config/values/config.ts';
import { method, NOTHING, ours } from '../../store/piped/pipe-calls.ts';

const TEXT = z.string();

/** Changes of operators, which hold until the gateway stops. */
export interface OperatorChanges {
  /** The reasons why upstreams are out of service, by id. */
  readonly disabled: ReadonlyMap<string, string>;
  readonly logLevel: LogLevel;
}

/** The settings with which a worker starts. */
export interface WorkerSetup {
  readonly config: Config;
  readonly changes: OperatorChanges;
  /** The requests that get a line in the log. */
  readonly requests: 'all' | 'errors' | 'none';
  /** The Unix socket where other workers connect. */
  readonly socket: string;
  /** The times that leases of placements and of counters last, in ms. */
  readonly leaseMs: number;
  readonly counterLeaseMs: number;
  /** The reason why sessions end with the parent; undefined if they are kept. */
  readonly notice: string | undefined;
  /** Reads the lists of all upstreams before listening. */
  readonly warm: boolean;
  /** Undefined if there is no audit log. */
  readonly audit: PipedAuditSettings | undefined;
}

/** The operations of the parent, besides those of its stores. */
export const PARENT = {
  setup: method('parent.setup', NOTHING, ours<WorkerSetup>()),
  /** The worker accepts connections. */
  listening: method('parent.listening', z.object({ url: TEXT, lockSummary: TEXT.optional() }), NOTHING),
  /** The worker cannot start, for this reason. */
  failed: method('parent.failed', TEXT, NOTHING),
} as const;

export const WORKER = {
  /** Answers at once. Its parent ends a worker that does not. */
  ping: method('worker.ping', NOTHING, NOTHING),
  /** Ends the reading of lists before it listens. It answers this as soon as it asks for its settings. */
  endWarmUp: method('worker.endWarmUp', NOTHING, NOTHING),
  readiness: method('worker.readiness', NOTHING, z.object({ ready: z.boolean(), reasons: z.array(TEXT) })),
  metrics: method('worker.metrics', NOTHING, TEXT),
  /** Does everything for another config that can fail, and changes nothing. */
  prepare: method('worker.prepare', ours<Config>(), NOTHING),
  /** Applies the config that was prepared last. */
  apply: method('worker.apply', NOTHING, NOTHING),
  /** Gives up the config that was prepared last. */
  abandon: method('worker.abandon', NOTHING, NOTHING),
  /** Ends when all requests have, or the time of a drain is over. */
  stop: method('worker.stop', NOTHING, NOTHING),
} as const;

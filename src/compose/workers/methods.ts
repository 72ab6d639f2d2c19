import { z } from 'zod';
import type { PipedAuditSettings } from '../../audit/audit-pipe.ts';
import type { Config, LogLevel } from '../../config/config.ts';
import * as answers from '../../operator/admin/answers.ts';
import type { CatalogQuery, ExplainRequest, OperatorCall } from '../../operator/admin/admin-port.ts';
import { method, NOTHING } from '../../store/piped/pipe-calls.ts';

const TEXT = z.string();
/** The longest time that an operation of an operator takes: that of the longest drain. */
export const OPERATOR_CALL_MS = 660_000;

/** A value of this program, which both sides have in the same version. */
function ours<Value>(): z.ZodType<Value> {
  return z.custom<Value>((value) => typeof value === 'object' && value !== null);
}

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

/** The operations of a worker. */
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

/** The outcome of an operation for operators: `refused` is an `AdminError`. */
export type Answered<Value> = { readonly value: Value } | { readonly refused: z.output<typeof answers.refusalAnswer> };

function answered<Value>(value: z.ZodType<Value>): z.ZodType<Answered<Value>> {
  return z.union([z.object({ value }), z.object({ refused: answers.refusalAnswer })]);
}

const DRAIN = z.object({ id: TEXT, drainMs: z.number() });

/** The operations of a worker for operators. */
export const ADMIN = {
  status: method('admin.status', NOTHING, answered(answers.statusAnswer)),
  upstreams: method('admin.upstreams', NOTHING, answered(answers.upstreamsAnswer)),
  catalog: method('admin.catalog', ours<CatalogQuery>(), answered(answers.catalogAnswer)),
  explain: method('admin.explain', ours<ExplainRequest>(), answered(answers.explainAnswer)),
  clients: method('admin.clients', NOTHING, answered(answers.clientsAnswer)),
  sessions: method('admin.sessions', NOTHING, answered(answers.sessionsAnswer)),
  streams: method('admin.streams', NOTHING, answered(answers.streamsAnswer)),
  calls: method('admin.calls', NOTHING, answered(answers.callsAnswer)),
  restartUpstream: method('admin.restartUpstream', DRAIN, answered(answers.restartAnswer)),
  disableUpstream: method('admin.disableUpstream', DRAIN, answered(TEXT)),
  endSession: method('admin.endSession', TEXT, answered(TEXT)),
  rotateKeys: method('admin.rotateKeys', z.number().optional(), answered(TEXT)),
  setLogLevel: method('admin.setLogLevel', answers.logLevelAnswer.shape.level, answered(z.boolean())),
  callTool: method(
    'admin.callTool',
    z.object({ operator: TEXT, call: ours<OperatorCall>() }),
    answered(answers.toolCallAnswer),
  ),
} as const;

import type { AuditTrail } from '../audit/audit-trail.ts';
import type { Config } from '../config/values/config.ts';
import { diffConfigs } from '../config/changes/diff.ts';
import { IdentityKeys } from '../credentials/identity-keys.ts';
import { Egress } from '../egress/egress.ts';
import { Callers } from '../policy/callers.ts';
import type { Loaded } from '../config/load.ts';
import { RefusalAudit } from '../downstream/admission/refusal-audit.ts';
import type { AdminPort } from '../operator/admin/admin-port.ts';
import type { Readiness } from '../operator/app.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import { droppedLinesOf, type Logger } from '../telemetry/log.ts';
import { createMetrics, type Metrics } from '../telemetry/metrics.ts';
import { COMMIT, VERSION } from '../version.ts';
import { createAdminPort } from './admin/admin-port.ts';
import { type ProcessPhase, refusalIn } from './admin/process-controls.ts';
import { operationRecorder, operatorHandlerOf } from './admin/operator-handler.ts';
import { type Cleanups, withCleanups } from './cleanups.ts';
import { ConfigChange, type PreparedConfig } from './reload/config-change.ts';
import type { Core } from './core/core.ts';
import { startCore } from './start-core.ts';
import { drain } from './drain.ts';
import { lastLists } from './lists/last-lists.ts';
import { lockSummary } from './lock-summary.ts';
import { Edge } from './edge.ts';
import { lastGoodKeeper } from './reload/last-good-keeper.ts';
import { openAuditLog } from './open-audit-log.ts';
import { openTracing } from './open-tracing.ts';
import { OperatorAccess } from './operator-access.ts';
import { Reloader } from './reload/reload.ts';
import type { AnsweringForAll, Replicas, ReplicaSurroundings } from './replicas/replicas.ts';
import { upstreamTransports } from './transports.ts';
import { logUnmatchedGlobs } from './lists/unmatched-globs.ts';
import { fullUpstreamStatuses, readiness } from './upstream-status.ts';
import type { WorkerSide } from './workers/worker-replicas.ts';

/** A gateway that listens. */
export interface ListeningGateway {
  /** URL of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** The lock file and what it withheld at the start, as one line; undefined if nothing is pinned. */
  readonly lockSummary: string | undefined;
  /** Shows and reloads the config. */
  readonly config: ConfigControl;
  /** Seals later handles with a new key. Older ones stay valid for the longest validity of a session. */
  rotateKeys(): Promise<void>;
  /** Returns the number of requests that are not answered; undefined if only the workers know. */
  inFlightCount(): number | undefined;
  /** Refuses new requests, waits for those in flight, and closes everything. */
  stop(): Promise<void>;
}

/** A gateway in this process, with what the parent of workers asks them for. */
interface RunningProcess extends ListeningGateway {
  readonly inside: {
    readonly admin: AdminPort;
    readonly metrics: Pick<Metrics, 'text'>;
    readiness(): Readiness;
    /** Does everything for another config that can fail, and changes nothing. Gives up one that was prepared before. @throws if it cannot be applied. */
    prepare(next: Config): Promise<void>;
    /** Applies the config that was prepared last. */
    apply(): Promise<void>;
    /** Gives up the config that was prepared last, if there is one. */
    abandon(): Promise<void>;
  };
}

export interface ServeOptions {
  /** Loads the config again, with the options of the start. @throws {ConfigError} */
  readonly load: () => Promise<Loaded>;
  /** Loads the config to show the difference. Changes nothing. @throws {ConfigError} */
  readonly preview: () => Promise<Loaded>;
  /** Keeps a copy of each config that is applied, for a later start with a broken file. */
  readonly keepsLastGood?: boolean;
  /** If set, reads the lists of all upstreams before listening, at most until this promise settles. */
  readonly warmUntil?: Promise<unknown>;
  /** Runs as soon as a start has failed. Closing what was opened may take seconds, such as for records that the audit log cannot write. */
  readonly onFailed?: (thrown: unknown) => void;
  /** Set if this process is one of several workers. */
  readonly worker?: WorkerSide;
}

/**
 * Starts the gateway and listens.
 *
 * @throws {StartError} if an address or the state directory cannot be used.
 */
export function serve(loaded: Loaded, log: Logger, options: ServeOptions): Promise<RunningProcess> {
  return withCleanups((cleanups) => start(loaded, log, options, cleanups), options.onFailed);
}

/** @param cleanups closes what was opened if the start fails. */
async function start(loaded: Loaded, log: Logger, options: ServeOptions, cleanups: Cleanups): Promise<RunningProcess> {
  const { config } = loaded;
  const { stateDir } = config;
  const startedAtMs = Date.now();
  const metrics = createMetrics(VERSION, COMMIT);
  metrics.addProcess();
  metrics.reportDroppedLines(() => droppedLinesOf(log));
  const tracing = await openTracing(config, metrics, log);
  const callers = new Callers((limit) => metrics.countLimit(limit));
  const egress = cleanups.use(new Egress(config.egress, undefined, (limit) => metrics.countLimit(limit)));
  let audit: AuditTrail | undefined;
  let refusals: RefusalAudit | undefined;
  // Other replicas may pass on requests, which have records, until they are left.
  cleanups.defer(async () => {
    refusals?.flush();
    await audit?.close();
  });
  const replicas = await openReplicas(config, { metrics, log, callers }, options.worker);
  cleanups.defer(() => replicas?.close());
  audit = await openAudit(replicas, options.worker, config, metrics, log);
  refusals = audit && new RefusalAudit(audit, (limit) => metrics.countLimit(limit));
  const identity = new IdentityKeys();
  let edge: Edge | undefined;
  cleanups.defer(() => edge?.close());
  const transports = await upstreamTransports(config, metrics, log, { callers, identity, egress });
  const core = await startCore(config, metrics, transports, log, { ...replicas, tracing, audit, identity });
  cleanups.defer(() => core.stop());
  disableAsOthers(core, options.worker);
  const phase: ProcessPhase = { isStopping: false, isDraining: false };
  let forAll: AnsweringForAll | undefined;
  const ready = () => readinessIn(phase, core, [...(edge?.reasons ?? []), ...(audit?.reasons ?? [])]);
  metrics.recordStart(startedAtMs, loaded.lastGood && Date.parse(loaded.lastGood.savedAt));
  metrics.onScrape('ready', () => (ready().ready ? 1 : 0));
  // The parent of workers has the files of the state directory.
  const ownsState = core.keepsState && options.worker === undefined;
  const access = new OperatorAccess(config, { startedAtMs, ownsState, log });
  const onFileChange = () => void reloader.reload('file');
  const change = new ConfigChange({ loaded, core, access, log, onFileChange });
  const keepLastGood = lastGoodKeeper({ stateDir, isWanted: options.keepsLastGood === true, ownsState, log });
  // The parent of workers does it once for all of them.
  const judgeRules = (running: Config): void => {
    if (options.worker === undefined) logUnmatchedGlobs(running, lastLists(core.offers, core.views), log);
  };
  const reloader = new Reloader({
    loaded,
    load: options.load,
    isStopping: () => phase.isStopping,
    preview: options.preview,
    change,
    metrics,
    log,
    onApplied: async (applied) => {
      judgeRules(applied.config);
      await keepLastGood(applied);
      // Operators may have disabled an upstream that is new here.
      void forAll?.catchUp();
    },
    onReloaded: (cause, outcome) => audit?.record({ kind: 'reload', event: outcome, reason: cause }),
  });
  const own = createAdminPort({
    core,
    control: reloader,
    stateDir,
    log,
    startedAtMs,
    url: () => `${edge?.origin ?? ''}/mcp`,
    readiness: ready,
    groupsOfKey: (name) => edge?.groupsOfKey(name) ?? 'the gateway is starting',
    phase,
  });
  const onOperation = operationRecorder(audit);
  // The parent of workers answers operators for them.
  if (options.worker === undefined) forAll = await replicas?.answerForAll({ own, core, onOperation });
  if (options.warmUntil !== undefined) await Promise.race([core.refresh(), options.warmUntil]);
  identity.setIssuer(() => edge?.publicOrigin ?? '');
  const opened = await Edge.open(config, {
    core,
    metrics,
    log,
    operatorHandlerOf: operatorHandlerOf({
      port: forAll?.port ?? own,
      operators: () => access.keys,
      onOperation,
      startedAtMs,
      ready,
      upstreams: () => fullUpstreamStatuses(core),
      metrics,
      shownMetrics: metrics,
      refusals,
      log,
    }),
    storedEvents: replicas?.events,
    refusals,
    sharedKeys: replicas?.apiKeys,
    callers,
    egress,
    identity,
  });
  edge = opened;
  await replicas?.serve(core.gateway, opened.endpoints, () => opened.bodyBytes, {
    onRingChanged: () => core.onKeysChanged(),
    onRingReplaced: () => core.onKeysLost(),
  });
  await change.begin(opened);
  await keepLastGood(loaded);
  judgeRules(config);
  const running = cleanups.move();
  return {
    lockSummary: lockSummary(config, core),
    get url() {
      return `${opened.origin}/mcp`;
    },
    get operatorUrl() {
      return opened.operatorOrigin;
    },
    config: reloader,
    rotateKeys: async () => void (await core.rotateKeys()),
    inFlightCount: () => core.inFlightCount + core.parkedCount,
    stop: async () => {
      phase.isStopping = true;
      await reloader.settle();
      change.endWatch();
      await drain({ core, edge: opened, replicas, isStopOfAll: options.worker !== undefined, log });
      await access.withdraw();
      await running[Symbol.asyncDispose]();
    },
    inside: { admin: own, metrics, readiness: ready, ...stepsOf(change, config) },
  };
}

/** Joins the other replicas or workers, if there are any. Loads nothing of it otherwise. */
async function openReplicas(
  config: Config,
  surroundings: ReplicaSurroundings,
  worker: WorkerSide | undefined,
): Promise<Replicas | undefined> {
  if (worker !== undefined) {
    const { openWorkerReplicas } = await import('./workers/worker-replicas.ts');
    return await openWorkerReplicas(worker, surroundings);
  }
  const { redis } = config;
  if (redis === undefined) return undefined;
  const { openRedisReplicas } = await import('./replicas/redis-replicas.ts');
  return await openRedisReplicas({ ...config, redis }, surroundings);
}

/** Opens the audit log, if the config has one. That of a worker is that of its parent. */
async function openAudit(
  replicas: Replicas | undefined,
  worker: WorkerSide | undefined,
  config: Config,
  metrics: Metrics,
  log: Logger,
): Promise<AuditTrail | undefined> {
  if (worker === undefined) return (await openAuditLog(config, metrics, log, replicas?.owners.name))?.trail;
  const { openWorkerAudit } = await import('./workers/worker-audit.ts');
  return await openWorkerAudit(worker, metrics, log);
}

/** Takes the upstreams out of service that operators have disabled at the other workers before this one was started. */
function disableAsOthers({ upstreams, upstreamChanges }: Core, worker: WorkerSide | undefined): void {
  for (const [id, reason] of worker?.setup.changes.disabled ?? []) {
    if (upstreams.has(id)) void upstreamChanges.disable(id, reason, 0);
  }
}

/** Returns the steps in which the parent of workers brings configs into effect, one after the other. */
function stepsOf(change: ConfigChange, first: Config): Pick<RunningProcess['inside'], 'prepare' | 'apply' | 'abandon'> {
  let current = first;
  let due: { readonly next: Config; readonly prepared: PreparedConfig } | undefined;
  const takeDue = () => {
    const taken = due;
    due = undefined;
    return taken;
  };
  return {
    prepare: async (next) => {
      await takeDue()?.prepared.abandon();
      due = { next, prepared: await change.prepare(next) };
    },
    apply: async () => {
      const taken = takeDue();
      if (taken === undefined) throw new Error('no config was prepared');
      await taken.prepared.apply(diffConfigs(current, taken.next));
      current = taken.next;
    },
    abandon: async () => await takeDue()?.prepared.abandon(),
  };
}

/** Returns whether to send traffic to the gateway, and all reasons against it in words. */
function readinessIn(phase: ProcessPhase, core: Core, others: readonly string[]): Readiness {
  const refused = refusalIn(phase);
  if (refused !== undefined) return refused;
  const { ready, reasons } = readiness(core);
  return { ready, reasons: [...reasons, ...others] };
}

import { type Cleanups, withCleanups } from '../cleanups.ts';
import type { Config } from '../../config/values/config.ts';
import type { Loaded } from '../../config/load.ts';
import { RefusalAudit } from '../../downstream/admission/refusal-audit.ts';
import type { Readiness } from '../../operator/app.ts';
import { droppedLinesOf, type Logger, requestsOf, writeLog } from '../../telemetry/log.ts';
import { createMetrics } from '../../telemetry/metrics.ts';
import { COMMIT, VERSION } from '../../version.ts';
import { OperatorAccess } from '../operator-access.ts';
import { operationRecorder, operatorHandlerOf } from '../admin/operator-handler.ts';
import { logLevelOf, type ProcessPhase, refusalIn } from '../admin/process-controls.ts';
import { ConfigChange } from '../reload/config-change.ts';
import { lastGoodKeeper } from '../reload/last-good-keeper.ts';
import { Reloader } from '../reload/reload.ts';
import type { ListeningGateway, ServeOptions } from '../serve.ts';
import { openParentAudit } from './parent-audit.ts';
import { COUNTER_LEASE_MS, LEASE_MS, openParentState } from './parent-stores.ts';
import { MovablePort, OPERATOR_PORT } from '../movable-port.ts';
import { parentAdmin } from './parent-admin.ts';
import { MergedAdmin } from './merged-admin.ts';
import { SocketDir } from './socket-dir.ts';
import { WorkerMetrics } from './worker-metrics.ts';
import { readinessOf, WorkerSet } from './worker-set.ts';

/**
 * Starts a gateway whose clients are served by several workers. This process has the state, the operator's port and the log, and serves no client.
 *
 * @throws {StartError} if an address or the state directory cannot be used.
 */
export function serveWorkers(loaded: Loaded, log: Logger, options: ServeOptions): Promise<ListeningGateway> {
  return withCleanups((cleanups) => start(loaded, log, options, cleanups), options.onFailed);
}

/** @param cleanups closes what was opened if the start fails. */
async function start(
  loaded: Loaded,
  log: Logger,
  options: ServeOptions,
  cleanups: Cleanups,
): Promise<ListeningGateway> {
  const { config } = loaded;
  const { stateDir } = config;
  const startedAtMs = Date.now();
  const metrics = createMetrics(VERSION, COMMIT);
  metrics.addProcess();
  metrics.reportDroppedLines(() => droppedLinesOf(log));
  metrics.recordStart(startedAtMs, loaded.lastGood && Date.parse(loaded.lastGood.savedAt));
  const { state, server } = await openParentState(config, metrics, log);
  cleanups.use(state);
  const ownsState = state.notice === undefined;
  const audit = await openParentAudit(config, metrics, log);
  if (audit !== undefined) cleanups.use(audit);
  const refusals = audit && new RefusalAudit(audit.trail, (limit) => metrics.countLimit(limit));
  const dir = cleanups.use(await SocketDir.open(stateDir, ownsState));
  if (!ownsState) log.warn({ stateDir, why: state.notice }, 'sessions are not kept');
  const allMetrics = new WorkerMetrics(metrics, () => workers.listening);
  const admin = new MergedAdmin(() => workers.listening);
  const changes = () => ({ disabled: admin.disabled, logLevel: logLevelOf(log) });
  const workers = new WorkerSet({
    config,
    changes,
    onStarted: (worker) => void admin.bringUpToDate(worker, changes()),
    setup: {
      requests: requestsOf(log),
      leaseMs: LEASE_MS,
      counterLeaseMs: COUNTER_LEASE_MS,
      notice: state.notice,
      warm: options.warmUntil !== undefined,
      audit: audit?.forWorkers,
    },
    dir: dir.path,
    serveStores: (calls) => {
      audit?.serve(calls);
      return server.add(calls);
    },
    onLimit: (limit) => metrics.countLimit(limit),
    onLog: (lines) => writeLog(log, lines),
    onEnded: (text) => allMetrics.onEnded(text),
    onLost: (how, loss) => {
      metrics.countLostWorker(loss);
      audit?.trail.record({ kind: 'worker', event: 'lost', reason: how });
    },
    log,
  });
  cleanups.defer(() => workers.stop());
  const phase: ProcessPhase = { isStopping: false, isDraining: false };
  // A gateway is ready if a worker is. A missing one is replaced, and the others serve meanwhile.
  const readiness = async (): Promise<Readiness> => {
    const refused = refusalIn(phase);
    if (refused !== undefined) return refused;
    const { ready, reasons } = await readinessOf(workers.listening);
    const { missing } = workers;
    return {
      ready,
      reasons: [...(missing === undefined ? [] : [missing]), ...reasons, ...(audit?.trail.reasons ?? [])],
    };
  };
  let isReady = false;
  metrics.beforeScrape(async () => {
    isReady = (await readiness()).ready;
  });
  metrics.onScrape('ready', () => (isReady ? 1 : 0));
  const access = new OperatorAccess(config, { startedAtMs, ownsState, log });
  const keepLastGood = lastGoodKeeper({ stateDir, isWanted: options.keepsLastGood === true, ownsState, log });
  const change = new ConfigChange({
    loaded,
    core: {
      // If a worker refuses the config, nothing has changed.
      prepare: (next) => workers.apply(next),
      apply: async (next) => {
        admin.forgetRemoved(new Set(next.upstreams.map(({ id }) => id)));
        return { drained: Promise.resolve() };
      },
    },
    access,
    log,
    onFileChange: () => void control.reload('file'),
  });
  const control = new Reloader({
    loaded,
    load: options.load,
    isStopping: () => phase.isStopping,
    preview: options.preview,
    change,
    metrics,
    log,
    onApplied: async (applied) => {
      await keepLastGood(applied);
      await judgeRules(applied.config, log);
    },
    onReloaded: (cause, outcome) => audit?.trail.record({ kind: 'reload', event: outcome, reason: cause }),
  });
  void options.warmUntil?.then(() => workers.endWarmUp());
  const { url, lockSummary } = await workers.start();
  const handlerOf = operatorHandlerOf({
    port: parentAdmin({ workers: admin.port, control, log, startedAtMs, stateDir, readiness, phase }),
    operators: () => access.keys,
    onOperation: operationRecorder(audit?.trail),
    startedAtMs,
    ready: readiness,
    upstreams: async () => (await admin.port.upstreams()).upstreams,
    metrics,
    shownMetrics: allMetrics,
    refusals,
    log,
  });
  const operator = await MovablePort.open(OPERATOR_PORT, config, handlerOf);
  const listeners = {
    get operatorOrigin() {
      return operator.listener?.origin;
    },
    prepare: (next: Config) => operator.prepare(next),
  };
  await change.begin(listeners);
  await keepLastGood(loaded);
  await judgeRules(config, log);
  const running = cleanups.move();
  return {
    url,
    get operatorUrl() {
      return listeners.operatorOrigin;
    },
    lockSummary,
    config: control,
    rotateKeys: async () => void (await admin.port.rotateKeys(undefined)),
    inFlightCount: () => undefined,
    stop: async () => {
      phase.isStopping = true;
      await control.settle();
      change.endWatch();
      await workers.stop();
      // Operators see the requests in flight until then.
      await access.withdraw();
      await operator.close();
      refusals?.flush();
      await running[Symbol.asyncDispose]();
    },
  };
}

/** Logs the filters, rates and access rules that match nothing. Never rejects. */
async function judgeRules(config: Config, log: Logger): Promise<void> {
  try {
    // The parent has no lists of its own.
    const [{ openOffline }, { logUnmatchedGlobs }] = await Promise.all([
      import('../offline.ts'),
      import('../lists/unmatched-globs.ts'),
    ]);
    logUnmatchedGlobs(config, await openOffline(config), log);
  } catch (thrown) {
    log.warn({ err: thrown }, 'the filters, rates and access rules cannot be compared with the last lists');
  }
}

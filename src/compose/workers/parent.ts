import { type Cleanups, withCleanups } from '../cleanups.ts';
import type { Config } from '../../config/config.ts';
import type { Loaded } from '../../config/load.ts';
import { RefusalAudit } from '../../downstream/admission/refusal-audit.ts';
import type { Readiness } from '../../operator/app.ts';
import { droppedLinesOf, type Logger, requestsOf, writeLog } from '../../telemetry/log.ts';
import { createMetrics, type Metrics } from '../../telemetry/metrics.ts';
import { COMMIT, VERSION } from '../../version.ts';
import { OperatorAccess } from '../operator-access.ts';
import { operationRecorder, operatorHandlerOf } from '../admin/operator-handler.ts';
import { logLevelOf, type ProcessPhase, refusalIn } from '../admin/process-controls.ts';
import { namesItems } from '../lists/names-items.ts';
import { ConfigChange } from '../reload/config-change.ts';
import { lastGoodKeeper } from '../reload/last-good-keeper.ts';
import { Reloader } from '../reload/reload.ts';
import type { ListeningGateway, ServeOptions } from '../serve.ts';
import { openParentAudit, type ParentAudit } from './parent-audit.ts';
import { COUNTER_LEASE_MS, LEASE_MS, openParentState, type ParentState } from './parent-stores.ts';
import type { Listener } from '../listener.ts';
import { MovablePort, OPERATOR_PORT } from '../movable-port.ts';
import { parentAdmin } from './parent-admin.ts';
import { MergedAdmin } from './merged-admin.ts';
import { SocketDir } from './socket-dir.ts';
import { WorkerMetrics } from './worker-metrics.ts';
import { readinessOf, WorkerSet } from './worker-set.ts';

/**
 * Starts a gateway whose clients are served by several workers. This process has the state, the operator's port and the log, and serves no client.
 *
 * @throws {StartError} if an address cannot be used; another error if the state directory cannot be used.
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
  const startedAtMs = Date.now();
  const metrics = createMetrics(VERSION, COMMIT);
  metrics.reportDroppedLines(() => droppedLinesOf(log));
  metrics.recordStart(startedAtMs, loaded.lastGood && Date.parse(loaded.lastGood.savedAt));
  const { state, server } = await openParentState(config, metrics, log);
  cleanups.use(state);
  const audit = await openParentAudit(config, metrics, log);
  if (audit !== undefined) cleanups.use(audit);
  const dir = cleanups.use(await SocketDir.open(config.stateDir, state.notice === undefined));
  if (state.notice !== undefined) {
    log.warn({ stateDir: config.stateDir, why: state.notice }, 'sessions are not kept');
  }
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
  const parent = new Parent({ loaded, log, options, metrics, allMetrics, workers, admin, state, audit, startedAtMs });
  void options.warmUntil?.then(() => workers.endWarmUp());
  const { url, lockSummary } = await workers.start();
  await parent.open();
  const running = cleanups.move();
  return {
    url,
    get operatorUrl() {
      return parent.operatorOrigin;
    },
    lockSummary,
    config: parent.control,
    rotateKeys: async () => void (await parent.admin.rotateKeys(undefined)),
    inFlightCount: () => undefined,
    stop: async () => {
      await parent.beginStop();
      await workers.stop();
      await parent.close();
      await running[Symbol.asyncDispose]();
    },
  };
}

interface ParentParts {
  readonly loaded: Loaded;
  readonly log: Logger;
  readonly options: ServeOptions;
  readonly metrics: Metrics;
  readonly allMetrics: WorkerMetrics;
  readonly workers: WorkerSet;
  readonly admin: MergedAdmin;
  readonly state: ParentState['state'];
  readonly audit: ParentAudit | undefined;
  readonly startedAtMs: number;
}

/** The part of a gateway with workers that is for operators: its port, its config and its files. */
class Parent {
  readonly #parts: ParentParts;
  readonly #phase: ProcessPhase = { isStopping: false, isDraining: false };
  readonly #access: OperatorAccess;
  readonly #refusals: RefusalAudit | undefined;
  readonly #keepLastGood: (loaded: Loaded) => Promise<void>;
  readonly control: Reloader;
  readonly admin: MergedAdmin;
  readonly #change: ConfigChange;
  #operator: MovablePort<Listener | undefined> | undefined;

  constructor(parts: ParentParts) {
    const { loaded, log, options, metrics, workers, admin, state, audit, startedAtMs } = parts;
    const ownsState = state.notice === undefined;
    this.#parts = parts;
    this.#refusals = audit && new RefusalAudit(audit.trail, (limit) => metrics.countLimit(limit));
    this.#access = new OperatorAccess(loaded.config, { startedAtMs, ownsState, log });
    const { stateDir } = loaded.config;
    this.#keepLastGood = lastGoodKeeper({ stateDir, isWanted: options.keepsLastGood === true, ownsState, log });
    this.admin = admin;
    let isReady = false;
    metrics.beforeScrape(async () => {
      isReady = (await this.#readiness()).ready;
    });
    metrics.onScrape('ready', () => (isReady ? 1 : 0));
    this.#change = new ConfigChange({
      loaded,
      core: {
        // If a worker refuses the config, nothing has changed.
        prepare: (next) => workers.apply(next),
        apply: async (next) => {
          admin.forgetRemoved(new Set(next.upstreams.map(({ id }) => id)));
          return { drained: Promise.resolve() };
        },
      },
      access: this.#access,
      log,
      onFileChange: () => void this.control.reload('file'),
    });
    this.control = new Reloader({
      loaded,
      load: options.load,
      isStopping: () => this.#phase.isStopping,
      preview: options.preview,
      apply: (next, diff) => this.#change.apply(next, diff),
      metrics,
      log,
      onApplied: async (applied) => {
        await this.#keepLastGood(applied);
        await this.#judgeRules(applied.config);
      },
      onFiles: (files) => void this.#change.setFiles(files),
      onReloaded: (cause, outcome) => audit?.trail.record({ kind: 'reload', event: outcome, reason: cause }),
    });
  }

  get operatorOrigin(): string | undefined {
    return this.#operator?.listener?.origin;
  }

  /** Opens the operator's port. */
  async open(): Promise<void> {
    const { loaded, log, metrics, allMetrics, audit, startedAtMs } = this.#parts;
    const { control, admin } = this;
    const { config } = loaded;
    const readiness = () => this.#readiness();
    const phase = this.#phase;
    const { stateDir } = config;
    const handlerOf = operatorHandlerOf({
      port: parentAdmin({ workers: admin, control, log, startedAtMs, stateDir, readiness, phase }),
      operators: () => this.#access.keys,
      onOperation: operationRecorder(audit?.trail),
      startedAtMs,
      ready: readiness,
      upstreams: async () => (await admin.upstreams()).upstreams,
      metrics,
      shownMetrics: allMetrics,
      refusals: this.#refusals,
      log,
    });
    const operator = await MovablePort.open(OPERATOR_PORT, config, handlerOf);
    this.#operator = operator;
    await this.#change.begin({
      get operatorOrigin() {
        return operator.listener?.origin;
      },
      prepare: (next) => operator.prepare(next),
    });
    await this.#keepLastGood(loaded);
    await this.#judgeRules(config);
  }

  /** Logs the filters, rates and access rules that match nothing. Never rejects. */
  async #judgeRules(config: Config): Promise<void> {
    if (!namesItems(config)) return;
    const { log } = this.#parts;
    try {
      // The parent has no lists of its own, and most parents need none.
      const [{ openOffline }, { logUnmatchedGlobs }] = await Promise.all([
        import('../offline.ts'),
        import('../lists/unmatched-globs.ts'),
      ]);
      logUnmatchedGlobs(config, await openOffline(config), log);
    } catch (thrown) {
      log.warn({ err: thrown }, 'the filters, rates and access rules cannot be compared with the last lists');
    }
  }

  /** A gateway is ready if a worker is. A missing one is replaced, and the others serve meanwhile. */
  async #readiness(): Promise<Readiness> {
    const refused = refusalIn(this.#phase);
    if (refused !== undefined) return refused;
    const { workers } = this.#parts;
    const { ready, reasons } = await readinessOf(workers.listening);
    const { missing } = workers;
    return { ready, reasons: missing === undefined ? reasons : [missing, ...reasons] };
  }

  /** Tells load balancers that this gateway ends. */
  async beginStop(): Promise<void> {
    this.#phase.isStopping = true;
    await this.control.settle();
    this.#change.endWatch();
  }

  /** Ends the answers to operators, who see the requests in flight until then. */
  async close(): Promise<void> {
    await this.#access.withdraw();
    await this.#operator?.close();
    this.#refusals?.flush();
  }
}

import cluster, { type Worker } from 'node:cluster';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { Config } from '../../config/values/config.ts';
import { resultWithin } from '../../deadline.ts';
import type { Readiness } from '../../operator/app.ts';
import type { WorkerLoss } from '../../telemetry/replica-metrics.ts';
import { type OperatorChanges, WORKER, type WorkerSetup } from './methods.ts';
import { workerConfig } from './worker-config.ts';
import { cannotFork, WorkerProcess, type WorkerProcessParts } from './worker-process.ts';

/** A config may open connections and start upstreams before it is applied. */
const APPLY_MS = 60_000;
/** Workers that end are replaced at most this often in {@link RESTARTS_MS}. */
const RESTARTS = 5;
const RESTARTS_MS = 60_000;

/** The time that the others have to answer once one worker is ready. Probes wait for a second by default. */
const OTHERS_MS = 250;

export interface WorkerSetParts extends Pick<WorkerProcessParts, 'serveStores' | 'onLimit' | 'onLog'> {
  readonly config: Config;
  readonly setup: Omit<WorkerSetup, 'config' | 'socket' | 'changes'>;
  readonly changes: () => OperatorChanges;
  /** The directory of the sockets of the workers. */
  readonly dir: string;
  /** Called with a worker that accepts connections from now on. */
  readonly onStarted: (worker: WorkerProcess) => void;
  /** Called with the last metrics of a worker that has ended. */
  readonly onEnded: (metrics: string) => void;
  /** Called when a worker has ended by itself, or did not answer. @param how its exit code or signal. */
  readonly onLost: (how: string, loss: WorkerLoss) => void;
  readonly log: Logger;
}

/** The workers of a gateway. One that ends is replaced. */
export class WorkerSet {
  readonly #parts: WorkerSetParts;
  readonly #workers = new Set<WorkerProcess>();
  /** The config of workers that start. */
  #config: Config;
  /** Monotonic ms of the latest replacements, the oldest first. */
  #restartsMs: number[] = [];
  #restarting: NodeJS.Timeout | undefined;
  #started = 0;
  /** False until the first workers serve. If one of them does not, the gateway does not start. */
  #hasStarted = false;
  #warms: boolean;
  #isStopping = false;
  /** The last change of configs. A worker can prepare one config at a time. */
  #lastChange: Promise<unknown> = Promise.resolve();

  constructor(parts: WorkerSetParts) {
    this.#parts = parts;
    this.#config = parts.config;
    this.#warms = parts.setup.warm;
    // All workers accept from one socket, which costs less than handing connections over.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    cluster.setupPrimary({ args: ['worker'], serialization: 'advanced', stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
  }

  /** Starts all workers. The first one finds out whether the gateway can start. @throws {StartError} */
  async start(): Promise<{ readonly url: string; readonly lockSummary?: string | undefined }> {
    const first = await this.#fork().started;
    const others = Array.from({ length: this.#parts.config.workers - 1 }, () => this.#fork().started);
    await Promise.all(others);
    this.#hasStarted = true;
    this.#replace();
    return first;
  }

  /** The workers that accept connections. */
  get listening(): readonly WorkerProcess[] {
    return [...this.#workers].filter(({ isListening }) => isListening);
  }

  /** Returns what is missing until all workers serve, in words; undefined if nothing is. */
  get missing(): string | undefined {
    const missing = this.#parts.config.workers - this.listening.length;
    return missing === 0
      ? undefined
      : `${missing} of ${this.#parts.config.workers} workers ${missing === 1 ? 'does' : 'do'} not run`;
  }

  /** Applies a config at all workers, after each of them has prepared it. If one of them refuses, nothing has changed. @throws {Error} then. */
  apply(next: Config): Promise<void> {
    return this.#inTurn(() => this.#apply(next));
  }

  /** Runs a change of configs after those before it. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const changing = this.#lastChange.then(change);
    this.#lastChange = changing.catch(() => undefined);
    return changing;
  }

  async #apply(next: Config): Promise<void> {
    const prepared = this.listening;
    const answers = await Promise.allSettled(prepared.map((worker) => prepare(worker, next)));
    // Another worker takes the place of one that has ended, and the answer of that one does not count.
    const refusal = answers.find((answer, index) => answer.status === 'rejected' && prepared[index]?.isListening);
    if (refusal?.status === 'rejected') {
      await Promise.allSettled(prepared.map((worker) => worker.call(WORKER.abandon, undefined)));
      throw refusal.reason;
    }
    this.#config = next;
    await Promise.all(this.listening.map((worker) => this.#swap(worker, prepared.includes(worker))));
  }

  /** Applies the config of the others to a worker. One that cannot is replaced. @param isPrepared true if it has prepared that config. */
  async #swap(worker: WorkerProcess, isPrepared: boolean): Promise<void> {
    try {
      if (!isPrepared) await prepare(worker, this.#config);
      await worker.call(WORKER.apply, undefined, APPLY_MS);
    } catch (thrown) {
      if (!worker.isListening) return;
      this.#parts.log.error({ err: thrown, worker: worker.pid }, 'a worker cannot apply the config of the others');
      worker.kill();
    }
  }

  /** Lets workers that start listen without reading more lists. */
  endWarmUp(): void {
    this.#warms = false;
    for (const worker of this.#workers) void worker.endWarmUp();
  }

  /** Lets all workers finish their requests, and ends them. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#restarting);
    await Promise.all([...this.#workers].map((worker) => worker.stop()));
  }

  /** @throws {StartError} if the system refuses another process. */
  #fork(): WorkerProcess {
    const { setup, changes, dir, serveStores, onLimit, onLog } = this.#parts;
    const socket = join(dir, `${++this.#started}.sock`);
    const config = workerConfig(this.#config);
    const worker = new WorkerProcess({
      process: fork(),
      setup: () => ({ ...setup, warm: this.#warms, config, changes: changes(), socket }),
      serveStores,
      onLimit,
      onLog,
      onEnd: (ended, how, loss) => this.#onEnd(ended, how, loss),
    });
    this.#workers.add(worker);
    void this.#keepCurrent(worker, this.#config);
    return worker;
  }

  /** Watches a worker that has started. Applies a config to it that was applied to the others while it has started with another. */
  async #keepCurrent(worker: WorkerProcess, given: Config): Promise<void> {
    try {
      await worker.started;
    } catch {
      worker.kill();
      return;
    }
    void worker.watch();
    this.#parts.onStarted(worker);
    if (this.#config !== given) await this.#inTurn(() => this.#swap(worker, false));
  }

  #onEnd(worker: WorkerProcess, how: string, loss: WorkerLoss): void {
    this.#workers.delete(worker);
    this.#parts.onEnded(worker.lastMetrics);
    if (this.#isStopping) return;
    if (worker.pid !== undefined) {
      this.#parts.log.error({ worker: worker.pid, how }, 'a worker has ended; another one takes its place');
      this.#parts.onLost(how, loss);
    }
    this.#replace();
  }

  /** Starts a worker in place of one that has ended. Never rejects. */
  async #forkAnother(): Promise<void> {
    try {
      await this.#fork().started;
    } catch (thrown) {
      this.#parts.log.error({ err: thrown }, 'a worker could not be replaced');
    }
  }

  /** Starts as many workers as are missing, now or when that is allowed again. */
  #replace(): void {
    if (this.#isStopping || !this.#hasStarted) return;
    const nowMs = performance.now();
    this.#restartsMs = this.#restartsMs.filter((ms) => nowMs - ms < RESTARTS_MS);
    while (this.#workers.size < this.#parts.config.workers && this.#restartsMs.length < RESTARTS) {
      this.#restartsMs.push(nowMs);
      void this.#forkAnother();
    }
    const [oldestMs = nowMs] = this.#restartsMs;
    if (this.#workers.size === this.#parts.config.workers || this.#restarting !== undefined) return;
    this.#restarting = setTimeout(
      () => {
        this.#restarting = undefined;
        this.#replace();
      },
      RESTARTS_MS - (nowMs - oldestMs),
    );
  }
}

/** @throws {StartError} if the system refuses another process. */
function fork(): Worker {
  try {
    return cluster.fork();
  } catch (thrown) {
    throw cannotFork(thrown);
  }
}

function prepare(worker: WorkerProcess, next: Config): Promise<void> {
  return worker.call(WORKER.prepare, workerConfig(next), APPLY_MS);
}

/** Asks workers whether they serve clients. One that is ready is enough, and others that do not answer are named without waiting for them. */
export async function readinessOf(workers: readonly WorkerProcess[]): Promise<Readiness> {
  const answered = new Set<WorkerProcess>();
  const reasons = new Set<string>();
  const ready = Promise.withResolvers<boolean>();
  const asked = workers.map(async (worker) => {
    const answer = await worker.call(WORKER.readiness, undefined);
    answered.add(worker);
    for (const reason of answer.reasons) reasons.add(reason);
    if (answer.ready) ready.resolve(true);
  });
  const all = Promise.allSettled(asked);
  void all.then(() => ready.resolve(false));
  const isReady = await ready.promise;
  if (isReady) await resultWithin(all, OTHERS_MS);
  const silent = workers.filter((worker) => worker.isListening && !answered.has(worker)).length;
  if (silent > 0) reasons.add(`${silent} of ${workers.length} workers ${silent === 1 ? 'does' : 'do'} not answer`);
  return { ready: isReady, reasons: [...reasons] };
}

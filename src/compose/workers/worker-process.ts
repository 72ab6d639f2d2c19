import { messageOf } from '../../thrown.ts';
import type { Worker } from 'node:cluster';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { StringDecoder } from 'node:string_decoder';
import { StartError } from '../../errors.ts';
import type { LimitName } from '../../limits.ts';
import type { WorkerLoss } from '../../telemetry/replica-metrics.ts';
import { type PipeMethod, PipeCalls } from '../../store/piped/pipe-calls.ts';
import { processPipe } from '../../store/piped/pipe.ts';
import { type OperatorChanges, PARENT, WORKER, type WorkerSetup } from './methods.ts';

/** Longer than a worker waits for its requests in flight. */
const STOP_MS = 80_000;
/** The pause between two questions whether a worker runs, and the time to answer one. */
const ASK_PAUSE_MS = 1_000;
const ASK_MS = 5_000;
/** A worker that leaves so many questions unanswered, one after the other, is ended. */
const UNANSWERED = 4;
/** The time in which a worker without a parent ends by itself. */
const KILL_MS = 5_000;
/** The longest line of a log. A longer one is cut into several. */
const MAX_LINE_CHARS = 262_144;

export interface WorkerProcessParts {
  readonly process: Worker;
  /** Returns the settings with which it starts. */
  readonly setup: () => WorkerSetup;
  /** Serves the stores of the parent to the worker. Returns the function that ends that. */
  readonly serveStores: (calls: PipeCalls) => () => void;
  readonly onLimit: (limit: LimitName) => void;
  /** Receives whole lines of the log of the worker. */
  readonly onLog: (lines: string) => void;
  /** Called when the process has ended, or could not be started. */
  readonly onEnd: (worker: WorkerProcess, how: string, loss: WorkerLoss) => void;
}

/** Returns the error of a process that the system refuses to start, such as for lack of memory or open files. */
export function cannotFork(thrown: unknown): StartError {
  return new StartError(`a worker cannot be started: ${messageOf(thrown)}`, { cause: thrown });
}

/** One worker, as its parent has it. */
export class WorkerProcess {
  readonly #worker: Worker;
  readonly #calls: PipeCalls;
  readonly #started = Promise.withResolvers<{ readonly url: string; readonly lockSummary?: string | undefined }>();
  #isListening = false;
  readonly #ended = Promise.withResolvers<void>();
  #isSilent = false;
  #given: OperatorChanges | undefined;
  /** Its metrics at the last scrape; empty before. */
  lastMetrics = '';

  constructor({ process, setup, serveStores, onLimit, onLog, onEnd }: WorkerProcessParts) {
    this.#worker = process;
    // Before the calls that wait are rejected, so that their callers see that it has gone.
    process.process.once('disconnect', () => {
      this.#isListening = false;
    });
    this.#calls = new PipeCalls(processPipe(process.process), onLimit);
    // The failure is that of `start`.
    this.#started.promise.catch(() => undefined);
    const endStores = serveStores(this.#calls);
    this.#calls.serve(PARENT.setup, async () => {
      const given = setup();
      this.#given = given.changes;
      return given;
    });
    this.#calls.serve(PARENT.listening, async (listening) => {
      this.#isListening = true;
      this.#started.resolve(listening);
    });
    this.#calls.serve(PARENT.failed, async (message) => this.#started.reject(new StartError(message)));
    const end = (how: string, failure: StartError): void => {
      endStores();
      this.#isListening = false;
      this.#started.reject(failure);
      this.#ended.resolve();
      onEnd(this, how, this.#isSilent ? 'silent' : 'ended');
    };
    process.on('error', (error) => {
      // An error of a process that runs is that of a message to it. If it has gone, its exit follows.
      if (this.pid === undefined) end(error.message, cannotFork(error));
    });
    if (this.pid !== undefined && process.process.stderr !== null) followLines(process.process.stderr, onLog);
    process.once('exit', (code: number | null, signal: string | null) => {
      const how = this.#isSilent ? 'no answer' : (signal ?? `exit code ${code}`);
      end(how, new StartError(`a worker has ended before it could serve (${how})`));
    });
  }

  /** Undefined if the system has refused to start it. */
  get pid(): number | undefined {
    return this.#worker.process.pid;
  }

  /** The changes of operators that it has started with; undefined before. */
  get given(): OperatorChanges | undefined {
    return this.#given;
  }

  /** Returns whether it accepts connections. */
  get isListening(): boolean {
    return this.#isListening;
  }

  /** Resolves when it accepts connections. @throws {StartError} if it cannot. */
  get started(): Promise<{ readonly url: string; readonly lockSummary?: string | undefined }> {
    return this.#started.promise;
  }

  /** Asks it. @param callMs the longest time to wait, in ms. @throws {GatewayError} `store-unavailable` if it does not answer. */
  async call<Args, Result>(method: PipeMethod<Args, Result>, args: Args, callMs?: number): Promise<Result> {
    return await this.#calls.call(method, args, callMs);
  }

  /**
   * Asks it at intervals whether it runs, until it has ended. Ends it if it does not answer, such as in an endless loop. The time is measured by answers, so that a
   * gateway that was suspended as a whole ends no worker. Never rejects.
   */
  async watch(): Promise<void> {
    for (let unanswered = 0; unanswered < UNANSWERED;) {
      await sleep(ASK_PAUSE_MS, undefined, { ref: false });
      const isAnswered = await this.call(WORKER.ping, undefined, ASK_MS).then(
        () => true,
        () => false,
      );
      if (!this.#isListening) return;
      unanswered = isAnswered ? 0 : unanswered + 1;
    }
    this.#isSilent = true;
    this.kill();
  }

  /** Lets it listen without reading more lists. Never rejects. */
  async endWarmUp(): Promise<void> {
    // One that has not asked for its settings does not answer, and gets others.
    if (!this.#isListening) await this.#calls.call(WORKER.endWarmUp, undefined).catch(() => undefined);
  }

  /** Lets it finish its requests, and ends it. Never rejects. */
  async stop(): Promise<void> {
    if (this.#isListening) await this.#calls.call(WORKER.stop, undefined, STOP_MS).catch(() => undefined);
    if (this.#worker.isConnected()) this.#worker.process.disconnect();
    // Without a parent a worker ends by itself.
    const killing = setTimeout(() => this.kill(), KILL_MS);
    await this.#ended.promise;
    clearTimeout(killing);
  }

  /** Ends the process at once. */
  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }
}

/** Passes on whole lines of a stream, several at once. */
function followLines(stream: Readable, onLines: (lines: string) => void): void {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  stream.on('data', (chunk: Buffer) => {
    rest += decoder.write(chunk);
    const end = rest.lastIndexOf('\n') + 1;
    if (end > 0) onLines(rest.slice(0, end));
    rest = rest.slice(end);
    if (rest.length <= MAX_LINE_CHARS) return;
    onLines(`${rest}\n`);
    rest = '';
  });
  stream.on('end', () => {
    if (rest !== '') onLines(`${rest}\n`);
  });
}

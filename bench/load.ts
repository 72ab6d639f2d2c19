/**
 * The load generator, one process per round: opens its sessions, warms up, measures, ends its sessions, and prints one line
 * of JSON. A steady one keeps its sessions, and plays a round for each message of its parent. It reads the CPU time of the process under test itself, so that the span and the count of requests are the same.
 */
import { Check } from './check.ts';
import { Conversation } from './conversation.ts';
import { once } from 'node:events';
import { type Job, parseJob, readTurn, type Round } from './job.ts';
import { percentile } from './percentile.ts';
import { cpuTimes, cpuUs, type Memory, memory, stolenMs } from './process-cost.ts';

const OPEN_MS = 60_000;
/** A longer wait for an answer fails the run. */
const STUCK_MS = 30_000;
const CLOSE_MS = 10_000;

function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`${what} took longer than ${ms} ms`)), ms);
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Returns the number of sessions of the connection at `index`. */
function sessionsOf({ sessions, connections }: Job, index: number): number {
  if (sessions === undefined) return 1;
  return Math.floor(sessions / connections) + (index < sessions % connections ? 1 : 0);
}

/** Sends requests on all conversations: each right after its answer, or all together at a given rate. */
class Load {
  readonly #job: Job;
  readonly #conversations: readonly Conversation[];
  readonly #failed = Promise.withResolvers<never>();
  readonly #idle: Conversation[] = [];
  #isAsking = false;
  #isMeasuring = false;
  #tookMs: number[] = [];
  #events = 0;
  #refusals = 0;
  #watchdog: NodeJS.Timeout | undefined;

  constructor(job: Job) {
    this.#job = job;
    this.#failed.promise.catch(() => undefined);
    const check = new Check(job.ask, job.toolPrefix);
    this.#conversations = Array.from({ length: job.connections }, (_, index) => {
      return new Conversation({
        url: new URL(job.url),
        askUrl: job.askUrl === undefined ? undefined : new URL(job.askUrl),
        authorization: job.authorization,
        revision: job.revision,
        ask: job.ask,
        toolPrefix: job.toolPrefix,
        check,
        index,
        count: job.connections,
        sessions: sessionsOf(job, index),
        onRefusal: job.countsRefusals === true ? (conversation) => this.#refused(conversation) : undefined,
        onAnswer: (conversation, tookMs, asEvent) => this.#answered(conversation, tookMs, asEvent),
        onFailure: this.#failed.reject,
      });
    });
  }

  /** @throws {Error} at the first answer that is wrong or late. */
  async run(): Promise<Round> {
    const { warmMs, measureMs, pids } = this.#job;
    await this.open();
    const pacer = this.#start();

    await this.#pass(warmMs);
    this.#isMeasuring = true;
    const stolenBeforeMs = stolenMs();
    const cpuBefore = cpuTimes(pids);
    const beganMs = performance.now();
    await this.#pass(measureMs);
    const cpuAfter = cpuTimes(pids);
    const tookMs = performance.now() - beganMs;
    const stolen = stolenMs() - stolenBeforeMs;
    this.#isMeasuring = false;
    const memoryAfter = memory(pids);

    await this.#stop(pacer);
    await this.close();
    return this.#toRound(cpuUs(cpuBefore, cpuAfter), tookMs, stolen, memoryAfter);
  }

  /** Opens the sessions, and waits for a first answer in each, since that one may have to wait for a process to start. */
  async open(): Promise<void> {
    await this.#orFail(within(Promise.all(this.#conversations.map((each) => each.open())), OPEN_MS, 'the handshakes'));
    this.#watchdog = setInterval(() => this.#watch(), 1_000);
    for (const conversation of this.#conversations) conversation.ask();
    await this.#waitUntilSettled();
  }

  /** Measures from the first request to the last answer of a round of this length. */
  async playRound(ms: number): Promise<Round> {
    const { pids } = this.#job;
    this.#tookMs = [];
    this.#events = 0;
    this.#refusals = 0;
    this.#isMeasuring = true;
    const stolenBeforeMs = stolenMs();
    const cpuBefore = cpuTimes(pids);
    const beganMs = performance.now();
    const pacer = this.#start();
    await this.#pass(ms);
    await this.#stop(pacer);
    const cpuAfter = cpuTimes(pids);
    const tookMs = performance.now() - beganMs;
    this.#isMeasuring = false;
    return this.#toRound(cpuUs(cpuBefore, cpuAfter), tookMs, stolenMs() - stolenBeforeMs, memory(pids));
  }

  /** Ends the sessions. */
  async close(): Promise<void> {
    clearInterval(this.#watchdog);
    const closed = Promise.all(this.#conversations.map((each) => each.close()));
    await this.#orFail(within(closed, CLOSE_MS, 'ending the sessions'));
  }

  async #stop(pacer: NodeJS.Timeout | undefined): Promise<void> {
    this.#isAsking = false;
    clearInterval(pacer);
    await this.#waitUntilSettled();
  }

  #toRound(cpuUs: number, tookMs: number, stolen: number, memoryAfter: Memory): Round {
    const requests = this.#tookMs.length;
    if (requests === 0) throw new Error('nothing was answered while measuring');
    const sorted = Float64Array.from(this.#tookMs).toSorted();
    return {
      requests,
      perSecond: requests / (tookMs / 1_000),
      cpuUs: cpuUs / requests,
      p50Us: percentile(sorted, 0.5) * 1_000,
      p99Us: percentile(sorted, 0.99) * 1_000,
      ...memoryAfter,
      refusals: this.#refusals,
      stolenMs: stolen,
      answersAs: this.#events === 0 ? 'json' : this.#events === requests ? 'sse' : 'both',
    };
  }

  #start(): NodeJS.Timeout | undefined {
    const { ratePerSecond } = this.#job;
    this.#isAsking = true;
    if (ratePerSecond === undefined) {
      for (const conversation of this.#conversations) conversation.ask();
      return undefined;
    }
    const beganMs = performance.now();
    let asked = 0;
    return setInterval(() => {
      const due = Math.floor(((performance.now() - beganMs) * ratePerSecond) / 1_000);
      while (asked < due) {
        const conversation = this.#idle.shift();
        if (conversation === undefined) return;
        conversation.ask();
        asked++;
      }
    }, 1);
  }

  #answered(conversation: Conversation, tookMs: number, asEvent: boolean): void {
    if (this.#isMeasuring) {
      this.#tookMs.push(tookMs);
      if (asEvent) this.#events++;
    }
    this.#next(conversation);
  }

  #refused(conversation: Conversation): void {
    if (this.#isMeasuring) this.#refusals++;
    this.#next(conversation);
  }

  #next(conversation: Conversation): void {
    if (this.#job.ratePerSecond !== undefined) this.#idle.push(conversation);
    else if (this.#isAsking) conversation.ask();
  }

  async #waitUntilSettled(): Promise<void> {
    const now = () => performance.now();
    while (this.#conversations.some((each) => each.waitingMs(now()) !== undefined)) await this.#pass(1);
  }

  #watch(): void {
    const now = performance.now();
    if (this.#conversations.some((each) => (each.waitingMs(now) ?? 0) > STUCK_MS)) {
      this.#failed.reject(new Error(`a request was not answered within ${STUCK_MS} ms`));
    }
  }

  #pass(ms: number): Promise<void> {
    return this.#orFail(new Promise((resolve) => setTimeout(resolve, ms)));
  }

  #orFail<T>(promise: Promise<T>): Promise<T> {
    return Promise.race([promise, this.#failed.promise]);
  }
}

/** Plays a round for each message of the parent, until the parent disconnects. */
async function playSteadily(load: Load): Promise<void> {
  const stopped = once(process, 'disconnect');
  const failed = Promise.withResolvers<never>();
  const opened = load.open();
  process.on('message', (message) => {
    opened.then(() => load.playRound(readTurn(message).ms)).then((round) => process.send?.(round), failed.reject);
  });
  await opened;
  await Promise.race([stopped, failed.promise]);
  await load.close();
}

try {
  const job = parseJob(process.argv[2]);
  const load = new Load(job);
  if (job.isSteady === true) await playSteadily(load);
  else console.log(JSON.stringify(await load.run()));
} catch (thrown) {
  console.error(thrown instanceof Error ? thrown.message : thrown);
  process.exit(1);
}

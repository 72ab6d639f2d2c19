/**
 * The load generator, one process per round: opens its sessions, warms up, measures, ends its sessions, and prints one line
 * of JSON. It reads the CPU time of the process under test itself, so that the span and the count of requests are the same.
 */
import { Check } from './check.ts';
import { Conversation } from './conversation.ts';
import { type Job, parseJob, type Round } from './job.ts';
import { percentile } from './percentile.ts';
import { cpuTimes, cpuUs, memory } from './process-cost.ts';

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

  constructor(job: Job) {
    this.#job = job;
    this.#failed.promise.catch(() => undefined);
    const check = new Check(job.ask, job.toolPrefix);
    this.#conversations = Array.from({ length: job.connections }, (_, index) => {
      return new Conversation({
        url: new URL(job.url),
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
    await this.#orFail(within(Promise.all(this.#conversations.map((each) => each.open())), OPEN_MS, 'the handshakes'));
    const watchdog = setInterval(() => this.#watch(), 1_000);
    // The first answer may wait for the start of a process.
    for (const conversation of this.#conversations) conversation.ask();
    await this.#settled();
    const pacer = this.#start();

    await this.#pass(warmMs);
    this.#isMeasuring = true;
    const cpuBefore = cpuTimes(pids);
    const beganMs = performance.now();
    await this.#pass(measureMs);
    const cpuAfter = cpuTimes(pids);
    const tookMs = performance.now() - beganMs;
    this.#isMeasuring = false;
    const memoryAfter = memory(pids);

    this.#isAsking = false;
    clearInterval(pacer);
    await this.#settled();
    clearInterval(watchdog);
    const closed = Promise.all(this.#conversations.map((each) => each.close()));
    await this.#orFail(within(closed, CLOSE_MS, 'ending the sessions'));

    const requests = this.#tookMs.length;
    if (requests === 0) throw new Error('nothing was answered while measuring');
    const sorted = Float64Array.from(this.#tookMs).toSorted();
    return {
      requests,
      perSecond: requests / (tookMs / 1_000),
      cpuUs: cpuUs(cpuBefore, cpuAfter) / requests,
      p50Us: percentile(sorted, 0.5) * 1_000,
      p99Us: percentile(sorted, 0.99) * 1_000,
      ...memoryAfter,
      refusals: this.#refusals,
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

  async #settled(): Promise<void> {
    const now = () => performance.now();
    while (this.#conversations.some((each) => each.waitingMs(now()) !== undefined)) await this.#pass(5);
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

try {
  const round = await new Load(parseJob(process.argv[2])).run();
  console.log(JSON.stringify(round));
} catch (thrown) {
  console.error(thrown instanceof Error ? thrown.message : thrown);
  process.exit(1);
}

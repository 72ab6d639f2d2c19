import { setTimeout as delay } from 'node:timers/promises';
import { Check } from '../check.ts';
import { Conversation, type Refusal } from '../conversation.ts';
import type { Ask } from '../dialect.ts';
import { percentile } from '../percentile.ts';
import type { CallerJob, CallerReport } from './caller-job.ts';

const AT_ONCE = 50;
/** A call that could not be sent for this long is given up, as a client would. */
const PATIENCE_MS = 1_000;
/** The longest wait for answers after a turn. */
const LATE_MS = 30_000;

function sorted(numbers: readonly number[]): Float64Array {
  return Float64Array.from(numbers).toSorted();
}

function atShare(numbers: Float64Array, share: number): number {
  return numbers.length === 0 ? 0 : percentile(numbers, share);
}

/** The outcome of one second of a turn. */
class Second {
  readonly tookMs: number[] = [];
  refused = 0;
}

/** The counts of one turn. */
class Turn {
  readonly beganMs = performance.now();
  due = 0;
  unsent = 0;
  unanswered = 0;
  readonly refused = new Map<string, number>();
  readonly lost = new Map<string, number>();
  readonly refusalMs: number[] = [];
  readonly #seconds: Second[] = [];

  second(): Second {
    const index = Math.floor((performance.now() - this.beganMs) / 1_000);
    while (this.#seconds.length <= index) this.#seconds.push(new Second());
    return this.#seconds[index] ?? new Second();
  }

  report(ms: number): CallerReport {
    const tookMs = sorted(this.#seconds.flatMap((second) => second.tookMs));
    const refusals = sorted(this.refusalMs);
    return {
      due: this.due,
      answered: tookMs.length,
      answeredPerSecond: (tookMs.length * 1_000) / ms,
      p50Ms: atShare(tookMs, 0.5),
      p95Ms: atShare(tookMs, 0.95),
      p99Ms: atShare(tookMs, 0.99),
      maxMs: tookMs.at(-1) ?? 0,
      refused: Object.fromEntries(this.refused),
      refusalP50Ms: atShare(refusals, 0.5),
      refusalP99Ms: atShare(refusals, 0.99),
      lost: Object.fromEntries(this.lost),
      unsent: this.unsent,
      unanswered: this.unanswered,
      seconds: this.#seconds.map((second) => {
        const p99Ms = atShare(sorted(second.tookMs), 0.99);
        return { answered: second.tookMs.length, refused: second.refused, p99Ms };
      }),
    };
  }
}

function increment(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** Calls at a given rate, whether or not earlier calls are answered, as many independent clients do. */
export class OpenLoad {
  readonly #job: CallerJob;
  readonly #ask: Ask;
  readonly #check: Check;
  /** Open connections without a call. */
  #idle: Conversation[] = [];
  /** The times at which the calls in flight were due. */
  readonly #dueMs = new Map<Conversation, number>();
  /** The times at which calls were due that wait for a connection. */
  #waitingMs: number[] = [];
  readonly #dead = new WeakSet<Conversation>();
  #turn = new Turn();
  #opened = 0;

  constructor(job: CallerJob) {
    this.#job = job;
    this.#ask = { method: 'tools/call', tool: job.tool };
    this.#check = new Check(this.#ask, job.toolPrefix);
  }

  /** Opens all connections with their sessions. @throws {Error} if one is refused. */
  async open(): Promise<void> {
    for (let left = this.#job.connections; left > 0; left -= AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, () => this.#connect()));
    }
    if (this.#idle.length < this.#job.connections) {
      throw new Error(`connections were refused: ${JSON.stringify([...this.#turn.lost])}`);
    }
  }

  async #connect(): Promise<void> {
    const { url, authorizations, revision, toolPrefix, connections } = this.#job;
    const index = this.#opened++;
    const opened = new Conversation({
      url: new URL(url),
      askUrl: undefined,
      authorization: authorizations[index % Math.max(1, authorizations.length)],
      revision,
      ask: this.#ask,
      toolPrefix,
      check: this.#check,
      index,
      count: connections,
      sessions: 1,
      onRefusal: (conversation, refusal) => this.#refused(conversation, refusal),
      onAnswer: (conversation) => this.#answered(conversation),
      onFailure: (failure) => this.#lost(opened, failure),
    });
    try {
      await opened.open();
    } catch (thrown) {
      this.#lost(opened, thrown);
      throw thrown;
    }
    this.#free(opened);
  }

  /** Calls for this long at this rate, then waits for the answers. */
  async play(ms: number, ratePerSecond: number): Promise<CallerReport> {
    this.#turn = new Turn();
    const turn = this.#turn;
    const pacer = setInterval(() => {
      const nowMs = performance.now();
      // The first call is due at once.
      const due = 1 + Math.floor(((nowMs - turn.beganMs) * ratePerSecond) / 1_000);
      for (; turn.due < due; turn.due++) this.#send(turn.beganMs + (turn.due * 1_000) / ratePerSecond);
      this.#giveUp(nowMs);
    }, 1);
    await delay(ms);
    clearInterval(pacer);
    turn.unsent += this.#waitingMs.length;
    this.#waitingMs = [];
    for (let waited = 0; this.#dueMs.size > 0 && waited < LATE_MS; waited += 10) await delay(10);
    turn.unanswered = this.#dueMs.size;
    return turn.report(ms);
  }

  #giveUp(nowMs: number): void {
    let late = 0;
    while (nowMs - (this.#waitingMs[late] ?? nowMs) > PATIENCE_MS) late++;
    if (late === 0) return;
    this.#waitingMs.splice(0, late);
    this.#turn.unsent += late;
  }

  #send(dueMs: number): void {
    const conversation = this.#idle.shift();
    if (conversation === undefined) {
      this.#waitingMs.push(dueMs);
      return;
    }
    this.#dueMs.set(conversation, dueMs);
    conversation.ask();
  }

  #free(conversation: Conversation): void {
    this.#dueMs.delete(conversation);
    this.#idle.push(conversation);
    const dueMs = this.#waitingMs.shift();
    if (dueMs !== undefined) this.#send(dueMs);
  }

  #answered(conversation: Conversation): void {
    const dueMs = this.#dueMs.get(conversation) ?? performance.now();
    this.#turn.second().tookMs.push(performance.now() - dueMs);
    this.#free(conversation);
  }

  #refused(conversation: Conversation, { text, tookMs }: Refusal): void {
    this.#turn.second().refused++;
    increment(this.#turn.refused, text);
    this.#turn.refusalMs.push(tookMs);
    this.#free(conversation);
  }

  /** A client connects again, once. */
  #lost(conversation: Conversation, failure: unknown): void {
    // A connection that fails reports an error, and then its end.
    if (this.#dead.has(conversation)) return;
    this.#dead.add(conversation);
    increment(this.#turn.lost, String(failure));
    const wasOpen = this.#dueMs.delete(conversation) || this.#idle.includes(conversation);
    this.#idle = this.#idle.filter((other) => other !== conversation);
    // A failure of the new one is counted as well.
    if (wasOpen) this.#connect().catch(() => undefined);
  }
}

import { setTimeout as delay } from 'node:timers/promises';
import { DEADLINE_MS } from './check.ts';
import type { TimelessEnd } from './ends.ts';
import type { Attempt, History } from './history.ts';
import type { PlannedCall, PlannedClient } from './plan.ts';

/** The clock of a trial. */
export interface Clock {
  /** Returns ms since the begin. */
  now(): number;
}

/** One sending of a call, as a client reports it. */
export class OpenAttempt {
  readonly attempt: Attempt;
  readonly #clock: Clock;

  constructor(attempt: Attempt, clock: Clock) {
    this.attempt = attempt;
    this.#clock = clock;
  }

  get call(): PlannedCall {
    return this.attempt.call;
  }

  get isEnded(): boolean {
    return this.attempt.ends.length > 0;
  }

  /** True while the call may still end in time. */
  get isDue(): boolean {
    return this.#clock.now() < this.attempt.sentMs + DEADLINE_MS;
  }

  end(end: TimelessEnd): void {
    this.attempt.ends.push({ ...end, atMs: Math.round(this.#clock.now()) });
  }

  note(text: string): void {
    this.attempt.notes.push(`${Math.round(this.#clock.now())}: ${text}`);
  }

  /** Records progress. That of another call counts as a gap. */
  onProgress(progress: unknown, message: unknown): void {
    this.attempt.progress.push(message === this.call.nonce ? Number(progress) : Number.NaN);
  }

  resume(): void {
    this.attempt.resumed++;
  }

  /** The arguments of the tool. */
  get arguments(): Readonly<Record<string, unknown>> {
    const { id, nonce, way, steps, pauseMs } = this.call;
    return { call: id, attempt: this.attempt.number, nonce, way, steps, pauseMs };
  }
}

/** Sends calls as clients of one program do. */
export interface Caller extends AsyncDisposable {
  /** Prepares for a call, such as by a session. Returns false if that is not possible before `signal` is aborted. */
  prepare(signal: AbortSignal): Promise<boolean>;
  /** Sends the call once, and reports all that it receives. Returns when nothing more is to come. */
  send(open: OpenAttempt, signal: AbortSignal): Promise<void>;
}

const ATTEMPTS = 4;
const PAUSE_MS = 200;
/** An attempt is given up this long after its end was due. */
const GIVE_UP_MS = 6_000; // subject
const PREPARE_MS = 30_000; // subject

/** A client with its history. */
export class ChaosClient {
  readonly planned: PlannedClient;
  readonly history: History;
  readonly #caller: Caller;
  readonly #clock: Clock;

  constructor(planned: PlannedClient, caller: Caller, seen: Set<string>, clock: Clock) {
    this.planned = planned;
    this.history = { client: planned.name, attempts: [], seen };
    this.#caller = caller;
    this.#clock = clock;
  }

  /** Makes the planned calls at their times. */
  async run(): Promise<void> {
    await Promise.all(
      this.planned.calls.map(async (call) => {
        await delay(Math.max(0, call.atMs - this.#clock.now()));
        await this.call(call);
      }),
    );
  }

  /** Makes a call, and makes it again while the answer says that it did not run. @returns its last attempt. */
  async call(call: PlannedCall, attempts = ATTEMPTS): Promise<Attempt | undefined> {
    let last: Attempt | undefined;
    for (let number = 1; number <= attempts; number++) {
      if (number > 1) await delay(PAUSE_MS * number);
      if (!(await this.#caller.prepare(AbortSignal.timeout(PREPARE_MS)))) break;
      const attempt: Attempt = {
        call: number === 1 ? call : { ...call, resetMs: undefined },
        number,
        sentMs: Math.round(this.#clock.now()),
        ends: [],
        progress: [],
        notes: [],
        resumed: 0,
        session: undefined,
      };
      this.history.attempts.push(attempt);
      last = attempt;
      await this.#caller.send(new OpenAttempt(attempt, this.#clock), AbortSignal.timeout(DEADLINE_MS + GIVE_UP_MS));
      const [end] = attempt.ends;
      if (end?.kind !== 'error' || end.claim !== 'no') break;
    }
    return last;
  }

  close(): Promise<void> {
    return Promise.resolve(this.#caller[Symbol.asyncDispose]());
  }
}

import { setTimeout as delay } from 'node:timers/promises';
import { random } from '../../test/support/random.ts';
import { member } from '../mcp-client.ts';
import {
  beginModern,
  deleteSession,
  legacy,
  modern,
  openSession,
  openStream,
  type Place,
  type WireAnswer,
} from '../wire.ts';
import { oldSession } from './old-session.ts';
import { OWN_PROCESS, SLOW, type SoakJob, UPSTREAMS } from './job.ts';
import { Tally } from './tally.ts';

/** Sessions that make many calls, and clients of 2026-07-28. */
const SESSIONS = 12;
const MODERNS = 8;
const LISTENERS = 10;

/** The ways in which a session ends. */
const ENDS = ['delete', 'leave', 'leave while calling', 'delete while streaming', 'delete while calling'] as const;

const TOOLS = ['small', 'small', 'small', 'text_10kb', 'sse', 'progress'] as const;

/** The clients of a soak: each kind of client in loops of its own, until they are stopped. */
export class SoakClients {
  readonly tally = new Tally();
  readonly #job: SoakJob;
  readonly #below: (below: number) => number;
  readonly #stopped = new AbortController();

  constructor(job: SoakJob) {
    this.#job = job;
    this.#below = random(job.seed);
  }

  /** Resolves when all clients have ended after {@link stop}. */
  async run(): Promise<void> {
    const half = 1_000 / (this.#job.ratePerSecond / 2);
    await Promise.all([
      ...this.#loops(SESSIONS, 'session', 500, () => this.#session(half * SESSIONS)),
      ...this.#loops(MODERNS, 'modern', half * MODERNS, () => this.#modernCall()),
      ...this.#loops(LISTENERS, 'listen', 1_000, () => this.#listen()),
      ...this.#loops(1, 'short session', 3_000, () => this.#shortSession()),
      ...this.#loops(1, 'process session', 8_000, () => this.#processSession()),
      ...this.#loops(2, 'cancelled call', 2_000, () => this.#cancelledCall()),
      ...this.#loops(1, 'aborted call', 2_000, () => this.#abortedCall()),
      ...this.#loops(1, 'unfinished handshake', 10_000, () => this.#unfinished()),
      ...this.#loops(1, 'session of 2024-11-05', 5_000, () => this.#oldSession()),
    ]);
  }

  stop(): void {
    this.#stopped.abort();
  }

  #loops(count: number, kind: string, pauseMs: number, act: () => Promise<void>): readonly Promise<void>[] {
    return Array.from({ length: count }, () => this.#loop(kind, pauseMs, act));
  }

  async #loop(kind: string, pauseMs: number, act: () => Promise<void>): Promise<void> {
    await this.#pause(this.#below(Math.ceil(pauseMs)));
    while (!this.#stopped.signal.aborted) {
      try {
        await act();
      } catch (thrown) {
        if (!this.#stopped.signal.aborted) this.tally.fail(`${kind}: ${causeOf(thrown)}`, String(thrown));
      }
      await this.#pause(pauseMs);
    }
  }

  /** Waits; ends early when the clients are stopped. */
  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopped.signal }).catch(() => undefined);
  }

  #place(): Place {
    const { url, authorizations } = this.#job;
    return { url, authorization: this.#pick(authorizations) ?? '' };
  }

  #pick<T>(all: readonly T[]): T | undefined {
    return all[this.#below(all.length)];
  }

  #call(upstream: string | undefined = this.#pick(UPSTREAMS)): { readonly name: string; readonly arguments: object } {
    return { name: `${upstream}__${this.#pick(TOOLS)}`, arguments: { city: 'Oostende', days: 3 } };
  }

  #count(kind: string, { status, message }: WireAnswer): void {
    if (status === 200 && message?.result !== undefined) {
      this.tally.add(kind);
      return;
    }
    const error = message?.error;
    this.tally.fail(
      `${kind}: ${status} ${String(member(error, 'code'))} ${String(member(error, 'message'))}`,
      JSON.stringify(message) ?? 'no message',
    );
  }

  /** A session of a minute or two with a stream, many calls, and one of the ways to end. */
  async #session(everyMs: number): Promise<void> {
    const place = this.#place();
    const { signal } = this.#stopped;
    const session = await openSession(place, signal);
    if (session === undefined) throw new Error('no session');
    this.tally.add('session');
    const [ended, leaving] = [new AbortController(), new AbortController()];
    const reading = this.#readStream(
      () => openStream(place, session, ended.signal),
      leaving.signal,
      'stream of a session',
    );
    const untilMs = performance.now() + 20_000 + this.#below(100_000);
    try {
      while (performance.now() < untilMs && !signal.aborted) {
        const isList = this.#below(10) === 0;
        const [method, params] = isList ? (['tools/list', {}] as const) : (['tools/call', this.#call()] as const);
        this.#count(method, await legacy(place, session, method, params, { signal }));
        await this.#pause(everyMs / 2 + this.#below(Math.ceil(everyMs)));
      }
      leaving.abort();
      await this.#end(place, session, ended);
    } finally {
      leaving.abort();
      ended.abort();
      await reading;
    }
  }

  async #end(place: Place, session: string, stream: AbortController): Promise<void> {
    const { signal } = this.#stopped;
    const way = this.#pick(ENDS) ?? 'leave';
    const left = new AbortController();
    const calling = way.endsWith('calling')
      ? legacy(place, session, 'tools/call', this.#slowCall(), { signal: left.signal }).catch(() => undefined)
      : undefined;
    if (calling !== undefined) await this.#pause(500);
    if (way !== 'delete while streaming') stream.abort();
    if (way.startsWith('delete')) {
      const status = await deleteSession(place, session, signal);
      if (status >= 300) this.tally.fail(`DELETE: ${status}`, session);
    }
    left.abort();
    await calling;
    this.tally.add(`end: ${way}`);
  }

  #slowCall(): { readonly name: string; readonly arguments: object } {
    return { name: `${SLOW}__slow`, arguments: {} };
  }

  async #modernCall(): Promise<void> {
    const { signal } = this.#stopped;
    const isList = this.#below(10) === 0;
    const [method, params] = isList ? (['tools/list', {}] as const) : (['tools/call', this.#call()] as const);
    this.#count(`modern ${method}`, await modern(this.#place(), method, params, signal));
  }

  async #listen(): Promise<void> {
    const place = this.#place();
    const ended = new AbortController();
    const params = { notifications: { toolsListChanged: true } };
    const open = () => beginModern(place, 'subscriptions/listen', params, ended.signal);
    const reading = this.#readStream(open, ended.signal, 'subscriptions/listen');
    await this.#pause(5_000 + this.#below(55_000));
    ended.abort();
    await reading;
  }

  /** Reads a stream until it ends. An end before its client leaves is a failure. */
  async #readStream(open: () => Promise<Response>, leaving: AbortSignal, kind: string): Promise<void> {
    try {
      const response = await open();
      if (response.status !== 200) {
        this.tally.fail(`${kind}: ${response.status}`, await response.text());
        return;
      }
      this.tally.add(kind);
      await response.text();
      if (!leaving.aborted) this.tally.fail(`${kind} ended`, '');
    } catch (thrown) {
      if (!leaving.aborted) this.tally.fail(`${kind}: ${causeOf(thrown)}`, String(thrown));
    }
  }

  async #shortSession(): Promise<void> {
    const place = this.#place();
    const { signal } = this.#stopped;
    const session = await openSession(place, signal);
    this.#count('first list', await legacy(place, session, 'tools/list', {}, { signal }));
    this.#count('first call', await legacy(place, session, 'tools/call', this.#call(), { signal }));
    if (session !== undefined && this.#below(2) === 0) await deleteSession(place, session, signal);
    this.tally.add('short session');
  }

  /** A session for which a process is started. Half of them are left. */
  async #processSession(): Promise<void> {
    const place = this.#place();
    const { signal } = this.#stopped;
    const session = await openSession(place, signal);
    this.#count('call of a process', await legacy(place, session, 'tools/call', this.#call(OWN_PROCESS), { signal }));
    if (session !== undefined && this.#below(2) === 0) await deleteSession(place, session, signal);
  }

  /** A call that its session cancels by a notification. The connection stays. */
  async #cancelledCall(): Promise<void> {
    const place = this.#place();
    const { signal } = this.#stopped;
    const session = await openSession(place, signal);
    const [id, left] = [77, new AbortController()];
    const calling = legacy(place, session, 'tools/call', this.#slowCall(), { signal: left.signal, id });
    const received = calling.catch(() => undefined);
    await this.#pause(300);
    await legacy(place, session, 'notifications/cancelled', { requestId: id, reason: 'soak' }, { signal });
    await this.#pause(200);
    left.abort();
    await received;
    if (session !== undefined) await deleteSession(place, session, signal);
    this.tally.add('cancelled call');
  }

  /** A call of 2026-07-28 whose connection is closed. */
  async #abortedCall(): Promise<void> {
    const left = new AbortController();
    const calling = modern(this.#place(), 'tools/call', this.#slowCall(), left.signal).catch(() => undefined);
    await this.#pause(300);
    left.abort();
    await calling;
    this.tally.add('aborted call');
  }

  async #unfinished(): Promise<void> {
    await openSession(this.#place(), this.#stopped.signal, false);
    this.tally.add('unfinished handshake');
  }

  async #oldSession(): Promise<void> {
    const { authorization } = this.#place();
    const { signal } = this.#stopped;
    const answer = await oldSession({ url: this.#job.sseUrl, authorization }, this.#call(), signal);
    if (answer.includes('"result"')) this.tally.add('call of 2024-11-05');
    else this.tally.fail('call of 2024-11-05', answer);
  }
}

/** Returns the code of a failed connection, else the message of the error. */
function causeOf(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined;
  return String(member(cause, 'code') ?? thrown);
}

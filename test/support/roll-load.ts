import { setTimeout as delay } from 'node:timers/promises';
import { getEvents, type Got, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { act } from './nonce-remote.ts';
import { modernPost } from './modern-wire.ts';

export interface RollLoadOptions {
  /** A number in its nonces. Default: 1. */
  readonly name?: number;
  /** Number of sessions, each with one call after the other. */
  readonly sessions: number;
  /** Number of clients of 2026-07-28. */
  readonly moderns: number;
  /** Number of the sessions that keep a GET stream open. */
  readonly streams: number;
  /** The time of each call at the upstream. */
  readonly pauseMs: number;
  /** The pause of each client between its calls. */
  readonly betweenMs?: number;
}

/** The outcome of a load. */
export interface RollOutcome {
  /** The calls that were answered. */
  readonly nonces: readonly string[];
  /** Descriptions of calls, streams and sessions that have failed. */
  readonly failures: readonly string[];
  /** The number of calls that were refused because Redis did not answer within 250 ms, and made again. */
  readonly slow: number;
  /** Times of the answered calls. */
  readonly durationsMs: readonly number[];
}

/** Clients that call the tool `act` through a balancer until they are stopped. Each call has a nonce of its own. */
export class RollLoad implements AsyncDisposable {
  readonly #url: string;
  readonly #options: RollLoadOptions;
  readonly #nonces: string[] = [];
  readonly #failures: string[] = [];
  readonly #durationsMs: number[] = [];
  #clients: readonly Promise<void>[] = [];
  #last = 0;
  #slow = 0;
  #isStopping = false;

  private constructor(url: string, options: RollLoadOptions) {
    this.#url = url;
    this.#options = options;
  }

  static async start(url: string, options: RollLoadOptions): Promise<RollLoad> {
    const load = new RollLoad(url, options);
    const { sessions, moderns, streams } = options;
    const ids = await Promise.all(Array.from({ length: sessions }, () => initialize(url)));
    load.#clients = [
      ...ids.map((id) => load.#repeat((params) => post(url, rpc(1, 'tools/call', params), id))),
      ...Array.from({ length: moderns }, () => load.#repeat((params) => modernPost(url, 'tools/call', params))),
      ...ids.slice(0, streams).map((id) => load.#listen(id)),
      load.#open(),
    ];
    return load;
  }

  /** Number of answered calls. */
  get answered(): number {
    return this.#nonces.length;
  }

  /** Makes one call after the other. */
  async #repeat(call: (params: Record<string, unknown>) => Promise<Got>): Promise<void> {
    const { name = 1, pauseMs, betweenMs = 0 } = this.#options;
    while (!this.#isStopping) {
      const nonce = `nonce:${++this.#last}:${name};`;
      const beganMs = performance.now();
      try {
        const got = await this.#whileSlow(() => call(act(nonce, [], { pauseMs })));
        const isAnswered = got.status === 200 && JSON.stringify(messagesOf(got).at(-1)?.result ?? {}).includes(nonce);
        if (isAnswered) this.#nonces.push(nonce);
        else this.#failures.push(`${nonce} ${got.status} ${got.text.slice(0, 300)}`);
      } catch (thrown) {
        this.#failures.push(`${nonce} ${String(thrown)}`);
      }
      this.#durationsMs.push(performance.now() - beganMs);
      if (betweenMs > 0) await delay(betweenMs);
    }
  }

  /** Makes a call again while it is refused because Redis is slow, as on a busy machine. Nothing else is forgiven. */
  async #whileSlow(call: () => Promise<Got>): Promise<Got> {
    for (;;) {
      const got = await call();
      if (!got.text.includes('"message":"Shared state unavailable","data"')) return got;
      this.#slow++;
    }
  }

  /** Keeps a GET stream of a session open, and opens it again as the stream says. */
  async #listen(session: string): Promise<void> {
    while (!this.#isStopping) {
      const stream = await getEvents(this.#url, session);
      if (stream.status !== 200) this.#failures.push(`GET ${stream.status}`);
      while (!stream.isEnded && !this.#isStopping) await delay(20);
      stream.close();
      await delay(Math.min(stream.retryMs ?? 1_000, 1_000));
    }
  }

  /** Opens one session after the other. */
  async #open(): Promise<void> {
    while (!this.#isStopping) {
      const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
      const got = await this.#whileSlow(() => post(this.#url, rpc(0, 'initialize', params)));
      if (got.headers['mcp-session-id'] === undefined) this.#failures.push(`initialize ${got.status} ${got.text}`);
      await delay(50);
    }
  }

  /** Ends all clients after their calls. */
  async stop(): Promise<RollOutcome> {
    this.#isStopping = true;
    await Promise.all(this.#clients);
    return { nonces: this.#nonces, failures: this.#failures, slow: this.#slow, durationsMs: this.#durationsMs };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

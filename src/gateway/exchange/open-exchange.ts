import { GatewayError } from '../../errors.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { progressTokenOf } from '../../protocol/meta.ts';
import type { ErrorType } from '../../telemetry/operation.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import type { ConcurrencyLimiter, QueueTicket } from '../../upstream/concurrency-limiter.ts';
import type { MessageSink } from '../front.ts';
import type { Client, Exchange } from './exchange.ts';
import type { ConnectionHolder } from './connection-holder.ts';

/** An upstream whose request was refused has this long to end the call before the call is cancelled. */
const FAIL_GRACE_MS = 1_000;

const NOWHERE: MessageSink = { send: () => false };

/** An exchange on its way: waiting for room, under way at its upstream, or called off. */
export class OpenExchange implements Exchange {
  client: Client;
  /** Whose connections it goes by. */
  readonly holder: ConnectionHolder;
  request: Request;
  sink: MessageSink;
  progressToken: string | undefined;
  upstream: string | undefined;
  /** Published name of the tool that is called, for metrics. */
  tool: string | undefined;
  /** What the upstream had to say in the end, and how that counts. */
  outcome: { readonly answer: Answer | GatewayError; readonly error: ErrorType | undefined } | undefined;
  /** Why it ended before the upstream did. */
  failure: GatewayError | undefined;
  #call: Call<Exchange> | undefined;
  #limiter: ConcurrencyLimiter | undefined;
  #cancelled = false;
  #isCancelledByClient = false;
  /** Ends what is waited for besides a call. */
  #onCancel: (() => void) | undefined;
  /** The last progress told: it only ever grows, through however many calls it takes. */
  #progress = -Infinity;

  constructor(client: Client, holder: ConnectionHolder, request: Request, sink: MessageSink) {
    this.client = client;
    this.holder = holder;
    this.request = request;
    this.sink = sink;
    this.progressToken = progressTokenOf(request.params);
  }

  /** Whether the client cancelled it, and so gets no response. */
  get isCancelledByClient(): boolean {
    return this.#isCancelledByClient;
  }

  /** Takes a slot of the upstream; returns undefined when there was one at once. @throws {GatewayError} `overloaded`, `cancelled` */
  acquireSlot(limiter: ConcurrencyLimiter): Promise<void> | undefined {
    this.#check();
    const ticket = limiter.acquire(this.client.caller.principal.key);
    if (ticket !== undefined) return this.#wait(ticket, limiter);
    this.#limiter = limiter;
    return undefined;
  }

  async #wait(ticket: QueueTicket, limiter: ConcurrencyLimiter): Promise<void> {
    this.#onCancel = () => ticket.giveUp(new GatewayError('cancelled', { executed: 'no' }));
    await ticket.admitted;
    this.#limiter = limiter;
    if (this.#cancelled) this.releaseSlot();
    this.#check();
  }

  /** Waits for something that can be left alone at any time. @throws {GatewayError} `cancelled` */
  async unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    this.#check();
    const { promise: cancelled, reject } = Promise.withResolvers<never>();
    const executed = this.#call === undefined ? 'no' : 'unknown';
    this.#onCancel = () => reject(new GatewayError('cancelled', { executed }));
    try {
      return await Promise.race([wanted, cancelled]);
    } finally {
      this.#onCancel = undefined;
    }
  }

  #check(): void {
    if (this.#cancelled) throw new GatewayError('cancelled', { executed: 'no' });
  }

  /** Nobody is there to be told anything, until somebody takes it up again. */
  detach(): void {
    this.sink = NOWHERE;
  }

  /** Goes on for the same request made again. */
  attach(client: Client, request: Request, sink: MessageSink): void {
    this.client = client;
    this.request = request;
    this.sink = sink;
    this.progressToken = progressTokenOf(request.params);
  }

  advances(progress: number): boolean {
    // What is no number does not grow.
    if (!(progress > this.#progress)) return false;
    this.#progress = progress;
    return true;
  }

  releaseSlot(): void {
    this.#limiter?.release();
    this.#limiter = undefined;
  }

  /** From here on a cancel reaches the upstream. */
  attachCall(call: Call<Exchange>): void {
    this.#call = call;
  }

  fail(error: GatewayError): void {
    this.failure = error;
    // The upstream's request was refused a moment ago, and it mostly ends the call by itself. Python SDK servers lose the
    // session when a cancellation comes together with the refusal.
    setTimeout(() => this.cancel(error.message), FAIL_GRACE_MS).unref();
  }

  cancelByClient(reason: string | undefined): void {
    this.#isCancelledByClient = true;
    this.cancel(reason);
  }

  cancel(reason: string | undefined): void {
    this.#cancelled = true;
    this.#onCancel?.();
    this.#call?.cancel(reason);
  }
}

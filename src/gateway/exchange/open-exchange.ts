import type { View } from '../../catalog/view.ts';
import { type ErrorCode, GatewayError } from '../../errors.ts';
import { detach } from '../../json/kept-text.ts';
import type { Item } from '../../policy/decide.ts';
import type { CancelReason } from '../../protocol/cancellation.ts';
import type { Retry } from '../../protocol/input-required.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { progressTokenOf } from '../../protocol/meta.ts';
import type { ErrorType } from '../../telemetry/operation.ts';
import { traceWait } from '../../telemetry/tracing/mcp-spans.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import type { ConcurrencyLimiter, QueueTicket } from '../../upstream/quota/concurrency-limiter.ts';
import type { MessageSink } from '../front/front.ts';
import type { Client, Exchange } from './exchange.ts';
import type { ConnectionHolder, Upstream } from './connection-holder.ts';
import type { UpstreamRoute } from './route.ts';

/** The time that an upstream has to end the call after its server request was refused. Then the call is cancelled. */
const FAIL_GRACE_MS = 1_000;

/** One of several requests that wait for the same answer, with what the exchange needs to continue with it. */
type AttachedRequest = Pick<OpenExchange, 'client' | 'request' | 'sink' | 'span'>;

export const NULL_SINK: MessageSink = { send: () => false };

/** An exchange in one of its states: waiting for a slot, sent to its upstream, or cancelled. */
export class OpenExchange<Holder extends ConnectionHolder = ConnectionHolder> implements Exchange {
  client: Client;
  readonly holder: Holder;
  readonly startedMs = performance.now();
  /** A time before the access policy allowed the request. Monotonic ms. */
  judgedMs = this.startedMs;
  request: Request;
  sink: MessageSink;
  progressToken: string | undefined;
  upstream: string | undefined;
  view: View | undefined;
  /** The upstream of the task that the request is about, which the audit log names. */
  taskUpstream: string | undefined;
  /** The published name of the called tool, for metrics. */
  tool: string | undefined;
  /** The upstream's own name for it, for logs. */
  upstreamTool: string | undefined;
  span: Span | undefined;
  isTaskCall = false;
  /** The answers of the client that continue the call at a modern upstream, which has begun with it. */
  retry: Retry | undefined;
  /** The item about which an external decision has allowed the request, after a wait. */
  allowedItem: Item | undefined;
  /** True if the answer is that of an earlier call with the same idempotency key. */
  isReplay = false;
  /** True if the client gets no response, since it has cancelled the exchange. */
  isCancelledByClient = false;
  /** The upstream's answer, and the error type under which metrics count it. */
  outcome: { readonly answer: Answer | GatewayError; readonly error: ErrorType | undefined } | undefined;
  /** The gateway's own failure that a tool result tells the client. */
  toldFailure: ErrorCode | undefined;
  /** The error that ends the exchange regardless of the upstream's answer. */
  failure: GatewayError | undefined;
  /** Requests that wait for the answer, and were attached before {@link request}. Undefined until there is one. */
  #earlier: AttachedRequest[] | undefined;
  #call: Call<Exchange> | undefined;
  #limiter: ConcurrencyLimiter | undefined;
  #cancelled = false;
  /** Ends the current wait for something other than a call. */
  #onCancel: (() => void) | undefined;
  /** The last recorded progress. It increases across all calls of the exchange. */
  #progress = -Infinity;

  constructor(client: Client, holder: Holder, request: Request, sink: MessageSink) {
    this.client = client;
    this.holder = holder;
    this.request = request;
    this.sink = sink;
    this.progressToken = progressTokenOf(request.params);
  }

  /**
   * Acquires a slot of the upstream. Returns undefined if one was free, else a promise that resolves when one is: the wait is a span
   * of the exchange.
   *
   * @throws {GatewayError} `overloaded`, `cancelled`
   */
  acquireSlot({ id, limiter }: Pick<Upstream, 'id' | 'limiter'>): Promise<void> | undefined {
    this.throwIfCancelled();
    const ticket = limiter.acquire(this.client.caller.principal.key);
    if (ticket !== undefined) return traceWait(this.span, 'queue', id, this.#wait(ticket, limiter));
    this.#limiter = limiter;
    return undefined;
  }

  async #wait(ticket: QueueTicket, limiter: ConcurrencyLimiter): Promise<void> {
    const giveUp = () => ticket.giveUp(new GatewayError('cancelled', { executed: 'no' }));
    this.#onCancel = giveUp;
    await ticket.ready;
    this.#limiter = limiter;
    if (this.#cancelled) this.releaseSlot();
    this.throwIfCancelled();
  }

  /** Waits for a promise that needs no cleanup when the wait ends early. @throws {GatewayError} `cancelled` */
  async unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    // Nobody waits for it any more if the exchange is cancelled already.
    wanted.catch(() => undefined);
    this.throwIfCancelled();
    const { promise: cancelled, reject } = Promise.withResolvers<never>();
    const executed = this.#call === undefined ? 'no' : 'unknown';
    const onCancel = () => reject(new GatewayError('cancelled', { executed }));
    this.#onCancel = onCancel;
    try {
      return await Promise.race([wanted, cancelled]);
    } finally {
      this.#onCancel = undefined;
    }
  }

  /** To be called before a request is sent after a wait that a cancellation does not end. @throws {GatewayError} `cancelled` */
  throwIfCancelled(): void {
    if (this.#cancelled) throw new GatewayError('cancelled', { executed: 'no' });
  }

  /** Returns whether no request of the client waits for the answer. */
  get isDetached(): boolean {
    return this.sink === NULL_SINK;
  }

  /** Drops messages for the client until {@link attach} is called. The requests that wait are answered. */
  detach(): void {
    this.sink = NULL_SINK;
    this.#earlier = undefined;
  }

  /** Continues the exchange with a retry of its request. An equal retry that waits already may still get the answer. */
  attach(client: Client, request: Request, sink: MessageSink): void {
    if (!this.isDetached) (this.#earlier ??= []).push(this.#attached);
    this.#continueWith({ client, request, sink, span: this.span });
  }

  get #attached(): AttachedRequest {
    const { client, request, sink, span } = this;
    return { client, request, sink, span };
  }

  #continueWith({ client, request, sink, span }: AttachedRequest): void {
    this.client = client;
    this.request = request;
    this.sink = sink;
    this.span = span;
    this.progressToken = progressTokenOf(request.params);
  }

  /** Removes a request whose client has gone. Cancels the exchange if no other request waits for its answer. */
  leave(request: Request, reason: CancelReason): void {
    const earlier = this.#earlier;
    if (request !== this.request) {
      this.#earlier = earlier?.filter((one) => one.request !== request);
      return;
    }
    const latest = earlier?.pop();
    if (latest === undefined) this.cancel(reason);
    else this.#continueWith(latest);
  }

  recordProgress(progress: number): boolean {
    // This form is false for NaN too.
    if (!(progress > this.#progress)) return false;
    this.#progress = progress;
    return true;
  }

  /** Sets the called tool, which only logs and metrics read. */
  setTool({ tool, upstreamTool }: Pick<UpstreamRoute, 'tool' | 'upstreamTool'>): void {
    this.tool = tool;
    this.upstreamTool = upstreamTool;
  }

  releaseSlot(): void {
    this.#limiter?.release(this.client.caller.principal.key);
    this.#limiter = undefined;
  }

  /** Returns whether a call has been handed to the upstream. */
  get wasSent(): boolean {
    return this.#call !== undefined;
  }

  /** Sets the call at the upstream, so that a cancellation reaches it. */
  attachCall(call: Call<Exchange>): void {
    this.#call = call;
  }

  /** Drops all texts of an answered call. Its task keeps the exchange for up to an hour. */
  forgetCall(): void {
    const { kind, method } = this.request;
    this.request = { kind, id: '0', method, params: undefined };
    this.progressToken &&= detach(this.progressToken);
    this.tool &&= detach(this.tool);
    this.sink = NULL_SINK;
    this.allowedItem = undefined;
    this.outcome = undefined;
    this.#call = undefined;
  }

  fail(error: GatewayError): void {
    this.failure = error;
    // The upstream's server request was just refused, and most upstreams then end the call themselves. Python SDK
    // servers lose the session if a cancellation arrives together with the refusal.
    setTimeout(() => this.cancel(error.message), FAIL_GRACE_MS).unref();
  }

  cancelByClient(reason: CancelReason): void {
    this.isCancelledByClient = true;
    this.cancel(reason);
  }

  cancel(reason: CancelReason): void {
    this.#cancelled = true;
    // The upstream reports progress of a call as a task until it has answered it.
    this.progressToken = undefined;
    this.#onCancel?.();
    this.#call?.cancel(reason);
  }
}

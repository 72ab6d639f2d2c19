import { GatewayError } from '../../errors.ts';
import type { Item } from '../../policy/decide.ts';
import type { CancelReason } from '../../protocol/cancellation.ts';
import { isRetry } from '../../protocol/input-required.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import { withTraceContext } from '../../protocol/trace-context.ts';
import type { HeaderLookup } from '../../protocol/framing/mcp-headers.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import type { ClientGroup } from '../clients/client-group.ts';
import type { ModernCall, ModernCaller, ModernSink } from '../front/front.ts';
import type { SubscriptionStream } from './subscription-stream.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';

/** The reason of a cancellation that came before the work on the request began. */
const GONE = 'the client has gone';

export interface ModernRequestHost {
  toFailure(modernRequest: ModernRequest, thrown: unknown): Answer;
  /** Records and sends the answer. */
  finish(modernRequest: ModernRequest, answer: Answer): void;
}

/** One request of a modern client while it is in flight. */
export class ModernRequest implements ModernCall {
  request: Request;
  readonly caller: ModernCaller;
  readonly sink: ModernSink;
  readonly lookup: HeaderLookup | undefined;
  /** Undefined if requests are not traced. */
  readonly span: Span | undefined;
  exchange: OpenExchange | undefined;
  /** True if an upstream may be running the call already, which an earlier request has begun. */
  continuesCall: boolean;
  isAnsweredElsewhere = false;
  /** The item about which an external decision has allowed it, after a wait. */
  allowedItem: Item | undefined;
  /** The group of the client; undefined before it is found. */
  group: ClientGroup | undefined;
  #stream: SubscriptionStream | undefined;
  /** The same request in the process that has its parked call or task. */
  #elsewhere: ModernCall | undefined;
  readonly #host: ModernRequestHost;
  /** The group whose requests in flight include this one. */
  #countedIn: ClientGroup | undefined;
  /** The group of its exchange, if the exchange ends with the request. */
  #boundTo: ClientGroup | undefined;
  /** Runs when the request is answered. */
  onRelease: (() => void) | undefined;
  #isCancelled = false;
  #isClosed = false;
  /** Ends the wait of {@link unlessCancelled}. */
  #onCancel: (() => void) | undefined;

  constructor(
    host: ModernRequestHost,
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    lookup: HeaderLookup | undefined,
    span: Span | undefined,
  ) {
    this.#host = host;
    this.request = request;
    this.continuesCall = isRetry(request.params);
    this.caller = caller;
    this.sink = sink;
    this.lookup = lookup;
    this.span = span;
  }

  /** Sets the group of the client, which is not released for room until the request is answered. */
  openIn(group: ClientGroup): void {
    this.group = group;
    group.openCount++;
  }

  countIn(group: ClientGroup): void {
    group.inFlightCount++;
    this.#countedIn = group;
  }

  /** Sets the exchange, which an earlier request may have begun. Leaves it if the request is already cancelled. */
  bind(exchange: OpenExchange): void {
    this.exchange = exchange;
    if (exchange.span !== undefined) this.span?.link(exchange.span);
    exchange.span = this.span;
    if (this.#isCancelled) exchange.leave(this.request, GONE);
  }

  /** Sets an exchange that ends with the request, and adds it to its group. */
  bindTo(exchange: OpenExchange, group: ClientGroup): void {
    this.bind(exchange);
    this.#boundTo = group;
    group.addExchange(exchange);
  }

  /** The request for another process, as a part of the trace of this one. */
  get passedOn(): Request {
    const { request, span } = this;
    return span === undefined ? request : { ...request, params: withTraceContext(request.params, span.context) };
  }

  /** Sets the same request in the process that it is passed on to, which is cancelled with this one. */
  bindElsewhere(call: ModernCall): void {
    this.#elsewhere = call;
    if (this.#isCancelled) call.cancel(GONE);
  }

  /** Sets the stream that the request opened, and closes it if the request is already closed. */
  attachStream(stream: SubscriptionStream): void {
    this.#stream = stream;
    if (this.#isClosed) stream.close();
  }

  /** Waits for a promise before the request has an exchange. @throws {GatewayError} `cancelled` */
  async unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    const { promise, reject } = Promise.withResolvers<never>();
    const onCancel = () => reject(new GatewayError('cancelled', { executed: 'no' }));
    this.#onCancel = onCancel;
    if (this.#isCancelled) onCancel();
    try {
      return await Promise.race([wanted, promise]);
    } finally {
      this.#onCancel = undefined;
    }
  }

  cancel(reason: CancelReason): void {
    this.#isCancelled = true;
    this.#onCancel?.();
    // The exchange continues if another retry of the request is attached to it.
    this.exchange?.leave(this.request, reason);
    this.#elsewhere?.cancel(reason);
    this.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#stream?.close();
  }

  /** Answers the request with the outcome of this promise. */
  async follow(answering: Promise<Answer>): Promise<void> {
    let answer: Answer;
    try {
      answer = await answering;
      // It counts even if the upstream has answered after its question was refused.
      if (this.#failure !== undefined) throw this.#failure;
    } catch (thrown) {
      answer = this.#host.toFailure(this, this.#failure ?? thrown);
    }
    this.#host.finish(this, answer);
  }

  /** The failure of an exchange that ends with the request. */
  get #failure(): GatewayError | undefined {
    return this.#boundTo && this.exchange?.failure;
  }

  release(): void {
    if (this.group !== undefined) this.group.openCount--;
    if (this.#countedIn !== undefined) this.#countedIn.inFlightCount--;
    this.onRelease?.();
    if (this.exchange !== undefined) this.#boundTo?.removeExchange(this.exchange);
  }
}

import { GatewayError, upstreamError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { CancelReason } from '../../protocol/cancellation.ts';
import { type Envelope, withEnvelope } from '../../protocol/envelope.ts';
import { type Answer, type Notification, requestText } from '../../protocol/jsonrpc.ts';
import { type Header, standardHeaders } from '../../protocol/framing/mcp-headers.ts';
import { withToken } from '../../protocol/meta.ts';
import type { Severity } from '../../protocol/severity.ts';
import { type TraceContext, withTraceContext } from '../../protocol/trace-context.ts';
import type { Outgoing } from './transport.ts';

/** Returns the failure of a call whose upstream has asked, and will not get the answer. It would wait until its deadline. */
export function undeliveredAnswer(upstream: string): GatewayError {
  const event = 'accepts messages too slowly, so that the answer to its question was not sent; check what the call did';
  return upstreamError('overloaded', upstream, event, { executed: 'unknown', retryable: false });
}

export interface CallOptions<Context> {
  /** Longest wait without progress (`timeoutMs`), and in total (`maxMs`). Milliseconds; `Infinity` for no deadline. */
  readonly timeoutMs: number;
  readonly maxMs: number;
  /** Asks for progress, with a token of our own in place of the client's. */
  readonly progress: boolean;
  /** Routes progress after the answer until `forgetProgress`, because the call may continue as a task. */
  readonly outlivesAnswer?: boolean;
  /** Excludes the call from the calls in flight, so that the connection counts as idle. */
  readonly isBackground?: true;
  /** The object by which the caller knows the call, passed to {@link ConnectionEvents}. */
  readonly context: Context | undefined;
  /**
   * The client for whom the call is made. All of its calls have its key; undefined if nothing tells them from those of other clients.
   * Without a sender, messages of the upstream are never about the call.
   */
  readonly sender?: { readonly senderKey: string | undefined };
  /** In the modern era: the client capabilities (default `{}`), and the log level for this call. */
  readonly capabilities?: RawObject | undefined;
  readonly logLevel?: Severity | undefined;
  /** In the modern era: the `Mcp-Param-…` headers. */
  readonly paramHeaders?: readonly Header[] | undefined;
  /** The trace and span that the request belongs to, in place of those in `_meta` of its parameters. */
  readonly trace?: TraceContext | undefined;
  /** Called at the end of the call, before `answer` settles. */
  readonly onEnd?: (answer: Answer | GatewayError, durationMs: number) => void;
  /** Receives the notifications about this call, in place of {@link ConnectionEvents}. */
  readonly onNotification?: (notification: Notification) => void;
}

export interface Call<Context> {
  readonly id: number;
  readonly context: Context | undefined;
  /** Monotonic ms. */
  readonly startedMs: number;
  /** Resolves with the answer. Rejects with a {@link GatewayError} if there will be none. */
  readonly answer: Promise<Answer>;
  /** Cancels the request at the upstream, rejects `answer` with `cancelled`, and drops later messages about it. */
  cancel(reason: CancelReason): void;
  /** Marks the call as one that no client waits for. Until it is answered, messages that name no call may be about it. */
  abandon(): void;
}

interface Canceller<Context> {
  cancel(call: Call<Context>, reason: CancelReason): void;
  abandon(call: PendingCall<Context>): void;
}

function ignore(): void {}

/** A call with the state that its connection keeps until it is settled. */
export class PendingCall<Context> implements Call<Context> {
  readonly id: number;
  readonly method: string;
  readonly options: CallOptions<Context>;
  readonly startedMs: number = performance.now();
  lastActivityMs: number = this.startedMs;
  /** Runs until the call is settled; undefined without a deadline. */
  timer: NodeJS.Timeout | undefined;
  readonly #canceller: Canceller<Context>;
  readonly #answer = Promise.withResolvers<Answer>();

  constructor(canceller: Canceller<Context>, id: number, method: string, options: CallOptions<Context>) {
    this.#canceller = canceller;
    this.id = id;
    this.method = method;
    this.options = options;
    // The caller may use `onEnd` instead, and then nothing handles a rejection.
    this.#answer.promise.catch(ignore);
  }

  get answer(): Promise<Answer> {
    return this.#answer.promise;
  }

  get context(): Context | undefined {
    return this.options.context;
  }

  settle(outcome: Answer | GatewayError): void {
    this.options.onEnd?.(outcome, performance.now() - this.startedMs);
    if (outcome instanceof GatewayError) this.#answer.reject(outcome);
    else this.#answer.resolve(outcome);
  }

  cancel(reason: CancelReason): void {
    this.#canceller.cancel(this, reason);
  }

  abandon(): void {
    this.#canceller.abandon(this);
  }

  /** Returns the time at which the call times out. Monotonic ms. */
  get dueMs(): number {
    const { timeoutMs, maxMs } = this.options;
    return timeoutMs === Infinity ? Infinity : Math.min(this.lastActivityMs + timeoutMs, this.startedMs + maxMs);
  }
}

export function legacyRequest<Context>(
  id: number,
  method: string,
  params: RawObject | undefined,
  { progress, trace }: CallOptions<Context>,
): Outgoing {
  const sent = progress ? withToken(params, id) : params;
  if (trace === undefined) return { text: requestText(id, method, sent), id, method };
  return { text: requestText(id, method, withTraceContext(sent, trace)), id, method, trace };
}

/** Returns a request of the modern era, with its envelope and its HTTP headers. */
export function modernRequest<Context>(
  id: number,
  method: string,
  params: RawObject | undefined,
  { version, clientInfo }: Pick<Envelope, 'version' | 'clientInfo'>,
  { capabilities, logLevel, paramHeaders, progress, trace }: CallOptions<Context>,
): Outgoing {
  const clientCapabilities = capabilities ?? RawObject.EMPTY;
  const envelope: Envelope = { version, clientInfo, clientCapabilities, logLevel };
  const enveloped = withEnvelope(params, envelope, progress ? id : undefined);
  const sent = trace === undefined ? enveloped : withTraceContext(enveloped, trace);
  return {
    text: requestText(id, method, sent),
    id,
    method,
    standardHeaders: standardHeaders({ method, params: sent }),
    paramHeaders,
    trace,
  };
}

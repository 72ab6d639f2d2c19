import { ArrayMap } from '../../small-collections.ts';
import { MAX_TIMER_MS, setDeadline } from '../../deadline.ts';
import { GatewayError, upstreamError } from '../../errors.ts';
import { type CancelReason, cancelledParams, carriedParams } from '../../protocol/cancellation.ts';
import type { Envelope } from '../../protocol/envelope.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import {
  type Answer,
  EMPTY_RESULT,
  errorAnswer,
  type Id,
  idKey,
  type Message,
  type Notification,
  notificationText,
  type Request,
  type Response,
  responseText,
  type RpcError,
} from '../../protocol/jsonrpc.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { META, withoutMeta } from '../../protocol/meta.ts';
import type { ModernRevision, Revision } from '../../protocol/revisions.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { mayRequireInput } from '../../protocol/input-required.ts';
import { setLatest } from '../../map-entries.ts';
import { AbandonedCalls, type LateMessage } from './abandoned-calls.ts';
import { type Call, type CallOptions, legacyRequest, modernRequest, PendingCall, undeliveredAnswer } from './call.ts';
import { TokenBucket } from './token-bucket.ts';
import { nextRequestId, sentBackId } from './request-ids.ts';
import type { StartTransport, Transport, TransportEvents, TransportRequest, UpstreamSession } from './transport.ts';

export interface ServerRequest<Context> {
  readonly method: string;
  readonly params: RawObject;
  /** The context of the call that it belongs to, if the transport shows it. */
  readonly about: Context | undefined;
  /** Answers the request. Has no effect after the first answer, or after the upstream has cancelled the request. */
  answer(answer: Answer): void;
  /** Registers a function to run if the upstream cancels the request, with the params of its notification, or its connection ends. */
  onWithdrawn(run: (cancelled?: RawObject) => void): void;
}

/** Receives notifications and requests of an upstream. Called in the order of arrival; must return without waiting. */
export interface ConnectionEvents<Context> extends Pick<TransportEvents, 'onGap'> {
  /**
   * Receives a notification.
   *
   * @param about context of the call that the notification belongs to; undefined if it belongs to none. Progress still has our token.
   */
  onNotification(notification: Notification, about: Context | undefined): void;
  onServerRequest(request: ServerRequest<Context>): void;
  /** The handler of a notification, or of a server request, has thrown. The upstream gets an error for a request, and the connection goes on. */
  onFault?(thrown: unknown): void;
  /** The transport has failed to send a request, or to receive its answer. */
  onSendFailed?(error: GatewayError, isBackground: boolean): void;
  onError?(error: RpcError, isBackground: boolean): void;
  readonly onLimit?: (limit: LimitName) => void;
  onClose(error: GatewayError): void;
}

interface OpenServerRequest {
  readonly id: Id;
  /** Our id of the call on whose stream it arrived. */
  readonly about: number | undefined;
  onWithdrawn: ((cancelled?: RawObject) => void) | undefined;
}

const TOO_LARGE = errorAnswer(RPC.invalidRequest, 'Invalid Request: it exceeds the limit for one message');
const CALL_OVER = errorAnswer(RPC.internalError, 'The call that asks this is over');

/** A JSON-RPC peer over one transport: ids, pending requests, timeouts, cancellation. Closing it fails the pending requests. */
export class Connection<Context = unknown> {
  readonly upstream: string;
  readonly #events: ConnectionEvents<Context>;
  readonly #pending = new ArrayMap<number, PendingCall<Context>>();
  /** Servers that share a session may use the same ids. */
  readonly #serverRequests = new Set<OpenServerRequest>();
  /** Contexts of answered calls whose progress is still routed, by progress token. */
  readonly #outliving = new Map<number, Context>();
  readonly #abandoned: AbandonedCalls;
  readonly #firstByte = Promise.withResolvers<void>();
  #transport: Transport | undefined;
  #closed: GatewayError | undefined;
  /** Undefined until the first one. */
  #closeListeners: Set<() => void> | undefined;
  #isClosing = false;
  #backgroundCount = 0;
  readonly #notificationRate = new TokenBucket(LIMITS.notificationsPerSecond);
  /** The members of each envelope that are equal; undefined in the legacy era, where only `initialize` has them. */
  #modern: Pick<Envelope, 'version' | 'clientInfo'> | undefined;

  private constructor(upstream: string, events: ConnectionEvents<Context>) {
    this.upstream = upstream;
    this.#events = events;
    this.#abandoned = new AbandonedCalls(events.onLimit);
  }

  /** Starts the transport. @throws {GatewayError} `upstream-unavailable` */
  static async open<Context>(
    upstream: string,
    start: StartTransport,
    events: ConnectionEvents<Context>,
    signal: AbortSignal,
    request: TransportRequest,
  ): Promise<Connection<Context>> {
    const connection = new Connection(upstream, events);
    connection.#transport = await start(
      {
        onMessage: (message, about) => connection.#receive(message, about),
        onDropped: (about) => connection.#limitRate(about),
        onUnreadRequest: (id) => connection.#refuseUnread(id),
        onGap: () => events.onGap?.(),
        onFirstByte: () => connection.#firstByte.resolve(),
        onSendFailed: (id, error, isAnswered = false) => {
          const pending = connection.#settle(id);
          if (isAnswered) connection.#abandoned.remove(id);
          else if (pending !== undefined && error.executed !== 'no') connection.#abandon(pending);
          if (pending !== undefined) connection.#refuseOf(pending);
          pending?.settle(error);
          events.onSendFailed?.(error, pending?.options.isBackground === true);
        },
        onClose: (error) => connection.#onTransportClose(error),
      },
      signal,
      request,
    );
    return connection;
  }

  /** Resolves at the first byte of a program. Stays pending over transports that start no program. */
  get firstByte(): Promise<void> {
    return this.#firstByte.promise;
  }

  /** Number of calls in flight, without background calls. */
  get inFlight(): number {
    return this.#pending.size - this.#backgroundCount;
  }

  /** Returns whether the upstream may keep state for this connection: it is a process, or has given out a session id. */
  get mayKeepState(): boolean {
    return this.#transport?.mayKeepState ?? true;
  }

  get session(): UpstreamSession | undefined {
    return this.#transport?.session;
  }

  attach(session: UpstreamSession, revision: Revision): void {
    this.#transport?.attach?.(session, revision);
  }

  setLeft(isLeft: boolean): void {
    this.#transport?.setLeft?.(isLeft);
  }

  /** Returns whether the connection is closed or closing, so that it takes no more requests. */
  get isClosed(): boolean {
    return this.#closed !== undefined || this.#isClosing;
  }

  /** Registers a function to run when the connection has closed, or at once. Returns a function that takes it back. */
  onClosed(run: () => void): () => void {
    if (this.#closed !== undefined) run();
    const listeners = (this.#closeListeners ??= new Set());
    listeners.add(run);
    return () => listeners.delete(run);
  }

  /** Runs the functions for the close of the connection, which is given up and finishes its calls. Its close does not run them again. */
  reportGone(): void {
    const listeners = this.#closeListeners ?? [];
    this.#closeListeners = undefined;
    for (const run of listeners) run();
  }

  /** Sends a request. Never throws: a failure ends the returned call. */
  call(method: string, params: RawObject | undefined, options: CallOptions<Context>): Call<Context> {
    const id = nextRequestId();
    const pending = new PendingCall(this, id, method, options);
    if (this.#closed !== undefined || this.#isClosing || this.#transport === undefined) {
      pending.settle(
        new GatewayError('upstream-lost', { upstream: this.upstream, executed: 'no', retryable: true }, this.#closed),
      );
      return pending;
    }
    // Serialises before registering, so that a serialisation error leaves nothing pending.
    const outgoing =
      this.#modern === undefined
        ? legacyRequest(id, method, params, options)
        : modernRequest(id, method, params, this.#modern, options);
    this.#pending.set(id, pending);
    if (options.isBackground === true) this.#backgroundCount++;
    this.#awaitDeadline(pending, performance.now());
    this.#transport.send(outgoing);
    return pending;
  }

  /** Stops routing progress of answered calls of this context. */
  forgetProgress(context: Context): void {
    for (const [token, kept] of this.#outliving) if (kept === context) this.#outliving.delete(token);
  }

  /** Switches to a revision of the modern era, with this `clientInfo` in each request. */
  setModern(version: ModernRevision, clientInfo: RawObject): void {
    this.#modern = { version, clientInfo };
    this.setRevision(version);
  }

  setLegacy(): void {
    this.#modern = undefined;
  }

  countLimit(limit: LimitName): void {
    this.#events.onLimit?.(limit);
  }

  notify(method: string, params?: RawObject): void {
    if (this.#closed === undefined) this.#transport?.send({ text: notificationText(method, params), method });
  }

  setRevision(revision: Revision): void {
    this.#transport?.setRevision(revision);
  }

  /** Closes the transport, in bounded time. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#transport?.close();
    this.#onTransportClose(
      new GatewayError('upstream-lost', { upstream: this.upstream, message: 'the connection was closed' }),
    );
  }

  /** Cancels a call at the upstream, and fails it with `cancelled`. Has no effect on a settled call. */
  cancel({ id }: Call<Context>, reason: CancelReason): void {
    this.#cancel(id, reason, new GatewayError('cancelled', { upstream: this.upstream }));
  }

  /** Fails all calls under way, with more of a reason than the close that follows. */
  failCalls(error: GatewayError): void {
    for (const id of this.#pending.keys()) this.#settle(id)?.settle(error);
  }

  abandon(call: PendingCall<Context>): void {
    if (this.#pending.get(call.id) === call) this.#abandon(call);
  }

  #abandon({ id, method, options: { sender, logLevel } }: PendingCall<Context>): void {
    // A task that is over is not asked for its result any more.
    if (sender === undefined || method === 'tasks/result') return;
    const late = new Set<LateMessage>();
    // An upstream of a modern revision asks in answers, and logs for requests with a level.
    if (this.#modern === undefined || logLevel !== undefined) late.add('log');
    if (this.#modern === undefined && (mayRequireInput(method) || method === 'tasks/cancel')) late.add('question');
    this.#abandoned.add(id, sender.senderKey, late, performance.now());
  }

  /**
   * Returns whether the upstream may still send such a message about a call that ended without its answer. A message that names no call may then be
   * about that one.
   *
   * @param except the calls of the client with this key do not count.
   */
  hasAbandoned(message: LateMessage, except?: string): boolean {
    return this.#abandoned.has(message, except, performance.now());
  }

  /** Fails a call at its deadline. A deadline that activity has moved meanwhile is awaited again. */
  #awaitDeadline(pending: PendingCall<Context>, nowMs: number): void {
    const waitMs = pending.dueMs - nowMs;
    if (waitMs === Infinity) return;
    pending.timer = setDeadline(() => this.#checkDeadline(pending), Math.min(waitMs, MAX_TIMER_MS));
  }

  #checkDeadline(pending: PendingCall<Context>): void {
    if (this.#pending.get(pending.id) !== pending) return;
    const nowMs = performance.now();
    // While the upstream waits for an answer of a client, its calls do not time out. Some servers leave a question behind with its call.
    const isAsking = ({ about }: OpenServerRequest) => about === undefined || this.#pending.has(about);
    if (this.#serverRequests.values().some(isAsking)) pending.lastActivityMs = nowMs;
    if (nowMs >= pending.dueMs) this.#timeOut(pending, nowMs);
    else this.#awaitDeadline(pending, nowMs);
  }

  /** Records activity of the upstream that concerns all of its calls. */
  #recordActivity(): void {
    const nowMs = performance.now();
    for (const pending of this.#pending.values()) pending.lastActivityMs = nowMs;
  }

  #timeOut({ id, method, startedMs, options }: PendingCall<Context>, nowMs: number): void {
    const seconds = Math.round((nowMs - startedMs) / 100) / 10;
    // Other requests have deadlines of their own.
    const name = nowMs - startedMs >= options.maxMs ? 'max' : 'call';
    const setting = method === 'tools/call' ? ` (timeouts.${name})` : '';
    const event = `did not answer ${method} within ${seconds} s${setting}`;
    this.#cancel(id, 'timed out', upstreamError('upstream-timeout', this.upstream, event));
  }

  /** Removes a pending call. Returns undefined if there is none with this id. */
  #settle(id: number): PendingCall<Context> | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) return undefined;
    this.#pending.delete(id);
    clearTimeout(pending.timer);
    if (pending.options.isBackground === true) this.#backgroundCount--;
    return pending;
  }

  #cancel(id: number, reason: CancelReason, error: GatewayError): void {
    const pending = this.#settle(id);
    if (pending === undefined) return;
    if (this.#transport?.forget(id) !== 'unsent') {
      // The specification forbids cancelling initialize.
      if (pending.method !== 'initialize') this.notify('notifications/cancelled', cancelledParams(String(id), reason));
      this.#abandon(pending);
    }
    this.#withdrawOf(pending);
    pending.settle(error);
  }

  #receive(message: Message, about: number | undefined): void {
    switch (message.kind) {
      case 'result':
      case 'error':
        this.#onResponse(message, about);
        return;
      case 'notification':
        if (message.method !== 'notifications/progress') this.#limitRate(about);
        try {
          this.#onNotification(message, about);
        } catch (thrown) {
          // Nested members are parsed only when they are needed, and may be invalid. Such a notification is dropped.
          if (!(thrown instanceof JsonTextError)) this.#events.onFault?.(thrown);
        }
        return;
      case 'request':
        this.#limitRate(about);
        if (this.#modern !== undefined) return this.#refuseModern(message, about, this.#modern.version);
        this.#onServerRequest(message, about);
    }
  }

  /**
   * Handles a request from a modern upstream. The modern era has no such requests and no way to answer them, so the upstream
   * would wait forever. If the request arrived on the stream of a call, fails that call; otherwise drops the request.
   */
  #refuseModern({ method }: Request, about: number | undefined, revision: ModernRevision): void {
    if (about === undefined) return;
    const forbidden = `sent the request ${method} in the middle of a call, which revision ${revision} forbids`;
    const event = `${forbidden}; set era: legacy if it needs to ask`;
    this.#cancel(about, 'requests are not allowed here', upstreamError('upstream-protocol', this.upstream, event));
  }

  #refuseUnread(id: Id): void {
    if (this.#modern === undefined) this.#transport?.send({ text: responseText(id, TOO_LARGE) });
  }

  /** Pauses reading from an upstream that sends more messages per second than the limit, answers and progress of requests in flight left out. */
  #limitRate(about: number | undefined): void {
    const waitMs = this.#notificationRate.take(performance.now());
    if (waitMs > 0) this.#transport?.pause?.(waitMs, about);
  }

  #onResponse(response: Response, about: number | undefined): void {
    const id = sentBackId(response.id);
    const pending = this.#settle(id);
    // A response with an unknown id is late or repeated, and is dropped.
    if (pending === undefined) this.#limitRate(about);
    this.#abandoned.remove(id);
    if (pending?.context !== undefined && pending.options.outlivesAnswer === true)
      this.#keepProgress(pending.id, pending.context);
    if (pending !== undefined && response.kind === 'error') this.#refuseOf(pending);
    pending?.settle(response);
    if (response.kind === 'error') this.#events.onError?.(response.error, pending?.options.isBackground === true);
  }

  #keepProgress(token: number, context: Context): void {
    const isFull = setLatest(this.#outliving, token, context, LIMITS.answeredCallsWithProgress);
    if (isFull) this.#events.onLimit?.('answeredCallsWithProgress');
  }

  #onNotification(notification: Notification, about: number | undefined): void {
    const { method, params } = notification;
    if (method === 'notifications/progress') {
      const token = sentBackId(params?.raw('progressToken'));
      const pending = this.#pending.get(token);
      const context = pending === undefined ? this.#outliving.get(token) : pending.context;
      if (pending !== undefined) pending.lastActivityMs = performance.now();
      if (pending !== undefined || context !== undefined) this.#events.onNotification(notification, context);
      else this.#limitRate(about);
    } else if (method === 'notifications/cancelled') {
      const id = params?.raw('requestId');
      if (params !== undefined && id !== undefined) {
        const key = idKey(id);
        this.#withdraw((open) => idKey(open.id) === key, carriedParams(params));
      }
      if (this.#modern !== undefined) this.#endSubscription(sentBackId(id));
    } else {
      const pending = this.#callOf(notification, about);
      const handler = pending?.options.onNotification;
      if (handler !== undefined) handler(notification);
      else if (this.#modern === undefined || params === undefined)
        this.#events.onNotification(notification, pending?.context);
      else if (method !== 'notifications/subscriptions/acknowledged') {
        // Its stream may have been replaced.
        const own = { ...notification, params: withoutMeta(params, [META.subscriptionId]) };
        this.#events.onNotification(own, pending?.context);
      }
    }
  }

  /** Returns the call that a notification belongs to; undefined if that is unknown. */
  #callOf({ method, params }: Notification, about: number | undefined): PendingCall<Context> | undefined {
    if (about !== undefined) return this.#pending.get(about);
    if (this.#modern === undefined) return undefined;
    const subscription = params?.object('_meta')?.raw(META.subscriptionId);
    if (subscription !== undefined) return this.#pending.get(sentBackId(subscription));
    if (method !== 'notifications/message') return undefined;
    // Without a stream for each call, a log message names no call. It is routed only if a single call has a log level.
    const candidates = [...this.#pending.values()].filter(({ options }) => options.logLevel !== undefined);
    const [only] = candidates;
    return candidates.length === 1 && !this.hasAbandoned('log', only?.options.sender?.senderKey) ? only : undefined;
  }

  /** Fails a `subscriptions/listen` call that the upstream has cancelled, which happens over stdio. */
  #endSubscription(id: number): void {
    if (this.#pending.get(id)?.options.onNotification === undefined) return;
    this.#settle(id)?.settle(
      new GatewayError('upstream-lost', { upstream: this.upstream, message: 'it ended the stream' }),
    );
  }

  #onServerRequest(request: Request, about: number | undefined): void {
    const { id, method } = request;
    if (method === 'ping') {
      this.#transport?.send({ text: responseText(id, EMPTY_RESULT) });
      return;
    }
    const open: OpenServerRequest = { id, about, onWithdrawn: undefined };
    this.#serverRequests.add(open);
    const answer = (one: Answer) => {
      if (!this.#remove(open)) return;
      const fail = () => about !== undefined && this.#cancel(about, 'not answered', undeliveredAnswer(this.upstream));
      this.#transport?.send({ text: responseText(id, one), onDropped: fail });
    };
    try {
      this.#events.onServerRequest({
        method,
        params: request.params ?? RawObject.EMPTY,
        about: about === undefined ? undefined : this.#pending.get(about)?.context,
        answer,
        onWithdrawn: (run) => {
          open.onWithdrawn = run;
        },
      });
    } catch (thrown) {
      const isBroken = thrown instanceof JsonTextError;
      if (!isBroken) this.#events.onFault?.(thrown);
      const problem = isBroken ? `Invalid params: ${thrown.message}` : 'Internal error';
      answer(errorAnswer(isBroken ? RPC.invalidParams : RPC.internalError, problem));
    }
  }

  /** Returns false if it was answered or withdrawn before. */
  #remove(open: OpenServerRequest): boolean {
    const wasOpen = this.#serverRequests.delete(open);
    if (wasOpen) this.#recordActivity();
    return wasOpen;
  }

  #withdraw(isOver: (open: OpenServerRequest) => boolean, cancelled?: RawObject): OpenServerRequest[] {
    const over = [...this.#serverRequests].filter(isOver);
    for (const open of over) if (this.#remove(open)) open.onWithdrawn?.(cancelled);
    return over;
  }

  /** Withdraws the questions of a call that has failed. The question of a task does not end with the call that waits for its result. */
  #withdrawOf({ id, method }: PendingCall<Context>): OpenServerRequest[] {
    return method === 'tasks/result' ? [] : this.#withdraw((open) => open.about === id);
  }

  /** Withdraws the questions of a call that was lost, or answered with an error. Its upstream may still wait for their answers. */
  #refuseOf(call: PendingCall<Context>): void {
    for (const { id } of this.#withdrawOf(call)) this.#transport?.send({ text: responseText(id, CALL_OVER) });
  }

  #onTransportClose(error: GatewayError): void {
    if (this.#closed !== undefined) return;
    this.#closed = error;
    this.failCalls(error);
    this.#withdraw(() => true);
    this.#events.onClose(error);
    this.reportGone();
  }
}

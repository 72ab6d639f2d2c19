import { ArrayMap } from '../../small-collections.ts';
import { GatewayError } from '../../errors.ts';
import { type Envelope, withEnvelope } from '../../protocol/envelope.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import {
  type Answer,
  EMPTY_RESULT,
  type Id,
  type Message,
  type Notification,
  notificationText,
  type Request,
  requestText,
  type Response,
  responseText,
} from '../../protocol/jsonrpc.ts';
import { LIMITS } from '../../limits.ts';
import { standardHeaders } from '../../protocol/mcp-headers.ts';
import { META, withToken } from '../../protocol/meta.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { type Call, type CallOptions, PendingCall } from './call.ts';
import { TokenBucket } from './token-bucket.ts';
import { nextRequestId } from './request-ids.ts';
import type { Outgoing, StartTransport, Transport } from './transport.ts';

/** A request the upstream makes of its client. */
export interface ServerRequest<Owner> {
  readonly method: string;
  readonly params: RawObject;
  /** The call it belongs to, where the transport tells. */
  readonly about: Owner | undefined;
  /** Answers it, once; later answers, and answers after the upstream cancelled it, are dropped. */
  answer(answer: Answer): void;
  /** Runs when no answer is wanted any more: the upstream cancelled it or is gone. */
  onWithdrawn(run: () => void): void;
}

/** What an upstream says of its own accord. Called in the order of arrival; must return without waiting. */
export interface ConnectionEvents<Owner> {
  /** Progress of a call (token not yet translated), or a notification on a call's own stream, or (`undefined`) on neither. */
  onNotification(notification: Notification, about: Owner | undefined): void;
  onServerRequest(ask: ServerRequest<Owner>): void;
  onClose(error: GatewayError): void;
}

/** How late a call that got no answer may fail. */
const SWEEP_MS = 100;

/** Calls that went on as tasks and whose progress is still told; the oldest give way. */
const MAX_LASTING = 256;

interface OpenServerRequest {
  onWithdrawn: (() => void) | undefined;
}

/** One JSON-RPC peer over one transport: ids, what is pending, timeouts, cancellation. Closing rejects what is in flight. */
export class Connection<Owner> {
  readonly #upstream: string;
  readonly #events: ConnectionEvents<Owner>;
  readonly #pending = new ArrayMap<number, PendingCall<Owner>>();
  readonly #serverRequests = new Map<Id, OpenServerRequest>();
  /** Owners of calls whose progress is passed on after the answer, by token. */
  readonly #outliving = new Map<number, Owner>();
  readonly #firstByte = Promise.withResolvers<void>();
  #transport: Transport | undefined;
  #closed: GatewayError | undefined;
  #isClosing = false;
  #inBackground = 0;
  readonly #pace = new TokenBucket(LIMITS.notificationsPerSecond);
  /** While there are calls, and a moment longer. */
  #sweeping: NodeJS.Timeout | undefined;
  /** Who we say we are with every request; undefined in the legacy era, where `initialize` says it once. */
  #modernAs: RawObject | undefined;

  private constructor(upstream: string, events: ConnectionEvents<Owner>) {
    this.#upstream = upstream;
    this.#events = events;
  }

  /** @throws {GatewayError} `upstream-unavailable` */
  static async open<Owner>(
    upstream: string,
    start: StartTransport,
    events: ConnectionEvents<Owner>,
    signal: AbortSignal,
  ): Promise<Connection<Owner>> {
    const connection = new Connection(upstream, events);
    connection.#transport = await start(
      {
        onMessage: (message, about) => connection.#receive(message, about),
        onFirstByte: () => connection.#firstByte.resolve(),
        onSendFailed: (id, error) => connection.#settle(id)?.settle(error),
        onClose: (error) => connection.#end(error),
      },
      signal,
    );
    return connection;
  }

  /** Resolves when a program on the other side shows its first sign of life. */
  get firstByte(): Promise<void> {
    return this.#firstByte.promise;
  }

  /** Calls under way that somebody waits for. */
  get inFlight(): number {
    return this.#pending.size - this.#inBackground;
  }

  /** Whether the other side may keep state for this connection: a process, or a server that gave it a session. */
  get mayKeepState(): boolean {
    return this.#transport?.mayKeepState ?? true;
  }

  /** Nothing can be asked of it any more. */
  get isClosed(): boolean {
    return this.#closed !== undefined || this.#isClosing;
  }

  call(method: string, params: RawObject | undefined, options: CallOptions<Owner>): Call<Owner> {
    const id = nextRequestId();
    const pending = new PendingCall(this, id, method, options);
    if (this.#closed !== undefined || this.#isClosing || this.#transport === undefined) {
      pending.settle(
        new GatewayError('upstream-lost', { upstream: this.#upstream, executed: 'no', retryable: true }, this.#closed),
      );
      return pending;
    }
    // What cannot be said is not under way.
    const outgoing: Outgoing =
      this.#modernAs === undefined
        ? { text: requestText(id, method, options.progress ? withToken(params, id) : params), id, method }
        : modernRequest(id, method, params, this.#modernAs, options);
    this.#pending.set(id, pending);
    if (options.background === true) this.#inBackground++;
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS);
    this.#transport.send(outgoing);
    return pending;
  }

  /** What is said from here on about calls that lasted is said to nobody. */
  forgetProgress(owner: Owner): void {
    for (const [token, one] of this.#outliving) if (one === owner) this.#outliving.delete(token);
  }

  /** Speaks the modern era from here on, under this name; or the legacy one again. */
  speakModern(clientInfo: RawObject | undefined): void {
    this.#modernAs = clientInfo;
    if (clientInfo !== undefined) this.setRevision(MODERN);
  }

  notify(method: string, params?: RawObject): void {
    if (this.#closed === undefined) this.#transport?.send({ text: notificationText(method, params), method });
  }

  setRevision(revision: string): void {
    this.#transport?.setRevision(revision);
  }

  /** Ends the transport, in bounded time. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#transport?.close();
    this.#end(new GatewayError('upstream-lost', { upstream: this.#upstream, message: 'the connection was closed' }));
  }

  /** Tells the upstream that nobody waits for this call any more, and fails it. Without effect once it is settled. */
  cancel({ id }: Call<Owner>, reason: string | undefined): void {
    this.#cancel(id, reason, new GatewayError('cancelled', { upstream: this.#upstream }));
  }

  /** One look at the clock for all calls: a timer for each would cost more than most other parts of a call. */
  #sweep(): void {
    if (this.#pending.size === 0) {
      this.#rest();
      return;
    }
    const now = performance.now();
    for (const pending of this.#pending.values()) {
      // While the upstream waits for an answer itself, the wait is not its own.
      if (this.#serverRequests.size > 0) pending.lastActivityMs = now;
      if (now >= pending.dueMs) this.#timeOut(pending, now);
    }
  }

  #rest(): void {
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #timeOut({ id, method, startedMs }: PendingCall<Owner>, nowMs: number): void {
    const seconds = Math.round((nowMs - startedMs) / 100) / 10;
    const message = `upstream "${this.#upstream}" did not answer ${method} within ${seconds} s`;
    this.#cancel(id, 'timed out', new GatewayError('upstream-timeout', { upstream: this.#upstream, message }));
  }

  #settle(id: number): PendingCall<Owner> | undefined {
    const pending = this.#pending.get(id);
    if (pending === undefined) return undefined;
    this.#pending.delete(id);
    if (pending.options.background === true) this.#inBackground--;
    return pending;
  }

  #cancel(id: number, reason: string | undefined, error: GatewayError): void {
    const pending = this.#settle(id);
    if (pending === undefined) return;
    // The specification forbids cancelling initialize.
    if (pending.method !== 'initialize') {
      const params = RawObject.of({ requestId: id, ...(reason === undefined ? {} : { reason }) });
      this.notify('notifications/cancelled', params);
    }
    this.#transport?.forget(id);
    pending.settle(error);
  }

  #receive(message: Message, about: number | undefined): void {
    switch (message.kind) {
      case 'result':
      case 'error':
        this.#onResponse(message);
        return;
      case 'notification':
        if (message.method !== 'notifications/progress') this.#slowDown(about);
        try {
          this.#onNotification(message, about);
        } catch (thrown) {
          // Members further inside are cut open only when they are needed, and may turn out broken. News can be lost.
          if (!(thrown instanceof JsonTextError)) throw thrown;
        }
        return;
      case 'request':
        if (this.#modernAs !== undefined) {
          this.#refuseModern(message, about);
          return;
        }
        try {
          this.#onServerRequest(message, about);
        } catch (thrown) {
          if (!(thrown instanceof JsonTextError)) throw thrown;
          this.#serverRequests.delete(message.id);
          const error = { code: -32602, message: `Invalid params: ${thrown.message}` };
          this.#transport?.send({ text: responseText(message.id, { kind: 'error', error }) });
        }
    }
  }

  /**
   * The modern era has no requests in this direction and no way to answer one: the upstream would wait for ever. The call is
   * ended where the request came on its own stream; elsewhere the request is dropped, for nothing tells whose it is.
   */
  #refuseModern({ method }: Request, about: number | undefined): void {
    if (about === undefined) return;
    const upstream = this.#upstream;
    const message =
      `upstream "${upstream}" sent the request ${method} in the middle of a call, which revision ${MODERN} does not allow; ` +
      'set era: legacy for this upstream if it needs to ask';
    this.#cancel(about, 'requests are not allowed here', new GatewayError('upstream-protocol', { upstream, message }));
  }

  /** Stops reading from an upstream that sends notifications too fast. */
  #slowDown(about: number | undefined): void {
    const waitMs = this.#pace.take(performance.now());
    if (waitMs > 0) this.#transport?.pause?.(waitMs, about);
  }

  #onResponse(response: Response): void {
    // An answer we do not know is late or doubled; a second one never reaches anybody.
    const pending = this.#settle(Number(response.id));
    if (pending?.context !== undefined && pending.options.outlivesAnswer === true)
      this.#keepProgress(pending.id, pending.context);
    pending?.settle(response);
  }

  #keepProgress(token: number, owner: Owner): void {
    this.#outliving.set(token, owner);
    const [oldest] = this.#outliving.keys();
    if (this.#outliving.size > MAX_LASTING && oldest !== undefined) this.#outliving.delete(oldest);
  }

  #onNotification(notification: Notification, about: number | undefined): void {
    const { method, params } = notification;
    if (method === 'notifications/progress') {
      const token = Number(params?.raw('progressToken'));
      const pending = this.#pending.get(token);
      const owner = pending === undefined ? this.#outliving.get(token) : pending.context;
      if (pending !== undefined) pending.lastActivityMs = performance.now();
      if (pending !== undefined || owner !== undefined) this.#events.onNotification(notification, owner);
    } else if (method === 'notifications/cancelled') {
      const id = params?.raw('requestId');
      this.#withdraw(id);
      if (this.#modernAs !== undefined) this.#onTransportClosed(Number(id));
    } else {
      const pending = this.#subject(notification, about);
      const told = pending?.options.onNotification;
      if (told === undefined) this.#events.onNotification(notification, pending?.context);
      else told(notification);
    }
  }

  /** The call a notification is about, where that can be told. */
  #subject({ method, params }: Notification, about: number | undefined): PendingCall<Owner> | undefined {
    if (about !== undefined) return this.#pending.get(about);
    if (this.#modernAs === undefined) return undefined;
    const subscription = params?.object('_meta')?.raw(META.subscriptionId);
    if (subscription !== undefined) return this.#pending.get(Number(subscription));
    if (method !== 'notifications/message') return undefined;
    // On one channel for all, a log message names no call: it can only be told where a single one wants any.
    const wanting = [...this.#pending.values()].filter(({ options }) => options.logLevel !== undefined);
    return wanting.length === 1 ? wanting[0] : undefined;
  }

  /** The upstream gave up a call of ours that has no end of its own: `subscriptions/listen` over stdio. */
  #onTransportClosed(id: number): void {
    if (this.#pending.get(id)?.options.onNotification === undefined) return;
    this.#settle(id)?.settle(
      new GatewayError('upstream-lost', { upstream: this.#upstream, message: 'it ended the stream' }),
    );
  }

  #onServerRequest(request: Request, about: number | undefined): void {
    const { id, method } = request;
    if (method === 'ping') {
      this.#transport?.send({ text: responseText(id, EMPTY_RESULT) });
      return;
    }
    const open: OpenServerRequest = { onWithdrawn: undefined };
    this.#serverRequests.set(id, open);
    this.#events.onServerRequest({
      method,
      params: request.params ?? RawObject.EMPTY,
      about: about === undefined ? undefined : this.#pending.get(about)?.context,
      answer: (answer) => {
        if (this.#serverRequests.get(id) !== open) return;
        this.#serverRequests.delete(id);
        const now = performance.now();
        for (const pending of this.#pending.values()) pending.lastActivityMs = now;
        this.#transport?.send({ text: responseText(id, answer) });
      },
      onWithdrawn: (run) => {
        open.onWithdrawn = run;
      },
    });
  }

  #withdraw(id: Id | undefined): void {
    const open = id === undefined ? undefined : this.#serverRequests.get(id);
    if (id === undefined || open === undefined) return;
    this.#serverRequests.delete(id);
    open.onWithdrawn?.();
  }

  #end(error: GatewayError): void {
    if (this.#closed !== undefined) return;
    this.#closed = error;
    for (const id of this.#pending.keys()) this.#settle(id)?.settle(error);
    this.#rest();
    for (const id of this.#serverRequests.keys()) this.#withdraw(id);
    this.#events.onClose(error);
  }
}

/** A request that says for itself who asks, in its parameters and again in headers. */
function modernRequest<Owner>(
  id: number,
  method: string,
  params: RawObject | undefined,
  clientInfo: RawObject,
  { capabilities, logLevel, headers, progress }: CallOptions<Owner>,
): Outgoing {
  const clientCapabilities = capabilities ?? RawObject.EMPTY;
  const envelope: Envelope = { version: MODERN, clientInfo, clientCapabilities, logLevel };
  const sent = withEnvelope(params, envelope, progress ? id : undefined);
  return {
    text: requestText(id, method, sent),
    id,
    method,
    headers: standardHeaders({ method, params: sent }),
    params: headers,
  };
}

import { malformedAnswer } from '../rpc/malformed-answer.ts';
import { ArrayMap, ArraySet } from '../../small-collections.ts';
import type { Logger } from 'pino';

import type { HttpTarget, UpstreamTimeouts } from '../../config/config.ts';
import { GatewayError } from '../../errors.ts';
import type { LimitName } from '../../limits.ts';
import type { StreamPosition } from '../../protocol/framing/event-stream.ts';
import type { Message, MessageError, Response } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { deleteSession } from './delete-session.ts';
import { interpretErrorResponse, type ErrorResponse } from './http-failure.ts';
import { isSessionId } from './http-headers.ts';
import { readMessages } from './http-messages.ts';
import { INITIALIZED, HandshakeQueue } from './handshake-queue.ts';
import { PostExchange, type PostExchangeOwner } from './http-post.ts';
import { HttpSession } from './http-session.ts';
import {
  type NextStep,
  reconnectMs,
  afterResumedStreamEnd,
  afterServerStreamEnd,
  ReconnectingStream,
} from './http-stream.ts';
import {
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  startUnlessAborted,
} from '../rpc/transport.ts';
import type { ResponseHeaders, Wire, WireHandler } from '../../http1/wire.ts';

/** The options of all transports over HTTP. */
export interface HttpOptions {
  readonly upstream: string;
  readonly timeouts: UpstreamTimeouts;
  readonly messageBytes: number;
  readonly log: Logger;
  /** Shared by all transports with the same credentials. The transport does not destroy it. */
  readonly wire: Wire;
  /** `linkspan/<version>` */
  readonly userAgent: string;
  /** Called when a message exceeds a bound, or reading is paused because the upstream sends too many notifications. */
  readonly onLimit?: (limit: LimitName) => void;
}

/** Longest wait in `close`, once for messages in flight and once for the DELETE. */
const CLOSE_MS = 1_000;

/** Added to the timeout of a call: a safety net above the timeout of the connection, whose error says more. */
export const RESPONSE_MARGIN_MS = 1_000;

/** Longest wait of the first call for the server's stream. Some servers send no headers before the first event. */
const LISTEN_MS = 250;

/**
 * Returns the transport for Streamable HTTP of the legacy era. Starting sends nothing: `initialize` is a message like any other.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
 */
export function httpTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return (events, signal) =>
    startUnlessAborted(options.upstream, signal, () => new HttpTransport(target, options, events));
}

class HttpTransport implements Transport, PostExchangeOwner {
  readonly upstream: string;
  readonly messageBytes: number;
  readonly #options: HttpOptions;
  readonly #events: TransportEvents;
  readonly #session: HttpSession;
  readonly #handshakeQueue = new HandshakeQueue((message) => this.#post(message));
  /** Requests in flight: the POST, and the stream that has replaced its response, if any. */
  readonly #inFlight = new ArrayMap<number, { readonly post: PostExchange; stream: ReconnectingStream | undefined }>();
  /** POSTs whose answer is not awaited: notifications, responses, and answered requests. */
  readonly #otherPosts = new ArraySet<PostExchange>();
  #serverStream: ReconnectingStream | undefined;
  /** Set when `notifications/initialized` is accepted. */
  #listenTimer: NodeJS.Timeout | undefined;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  #onOtherPostsDone: (() => void) | undefined;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    this.upstream = options.upstream;
    this.messageBytes = options.messageBytes;
    this.#options = options;
    this.#events = events;
    this.#session = new HttpSession(target, options.userAgent);
  }

  send(message: Outgoing): void {
    if (!this.#isClosed) this.#handshakeQueue.send(message);
  }

  forget(id: number): void {
    this.#handshakeQueue.forget(id);
    const { post, stream } = this.#inFlight.get(id) ?? {};
    this.#inFlight.delete(id);
    post?.cancel();
    stream?.close();
  }

  get mayKeepState(): boolean {
    return this.#session.id !== undefined;
  }

  setRevision(revision: string): void {
    this.#session.setRevision(revision);
  }

  pause(forMs: number, about: number | undefined): void {
    const entry = about === undefined ? undefined : this.#inFlight.get(about);
    const isPaused =
      entry === undefined ? this.#pauseOtherStreams(forMs) : (entry.stream?.pause(forMs) ?? entry.post.pause(forMs));
    if (isPaused) this.#options.onLimit?.('notificationsPerSecond');
  }

  /** Pauses the server's stream, and the streams of answered POSTs. */
  #pauseOtherStreams(forMs: number): boolean {
    let isPaused = this.#serverStream?.pause(forMs) === true;
    for (const post of this.#otherPosts) if (post.pause(forMs)) isPaused = true;
    return isPaused;
  }

  close(): Promise<void> {
    this.#closing ??= this.#isClosed ? Promise.resolve() : this.#close();
    return this.#closing;
  }

  onAccepted(post: PostExchange, headers: ResponseHeaders): void {
    if (post.method === 'initialize') {
      const sessionId = headers['mcp-session-id'];
      if (isSessionId(sessionId)) {
        this.#session.setId(sessionId);
      } else if (sessionId !== undefined) {
        post.fail(this.#protocolError('gave out a session id that is not visible ASCII'));
      }
    } else if (post.method === INITIALIZED) {
      this.#openServerStream();
      this.#listenTimer = setTimeout(() => this.#releaseHandshakeQueue(), LISTEN_MS);
    }
  }

  onText(post: PostExchange, text: string): void {
    this.#read(text, post);
  }

  onDone(post: PostExchange): void {
    this.#settle(post);
  }

  onRefused(post: PostExchange, refused: ErrorResponse): boolean {
    const inSession = this.#session.id !== undefined && post.method !== 'initialize';
    const refusal = interpretErrorResponse(this.upstream, refused, post.id, post.method, inSession);
    switch (refusal.kind) {
      case 'answer':
        this.#settle(post);
        if (post.id !== undefined) this.#events.onMessage(refusal.response, post.id);
        return refusal.isNamed;
      case 'session-lost':
        this.#onSessionUnknown(post);
        return false;
      case 'failed':
        this.onFailed(post, refusal.error);
        return false;
    }
  }

  onInterrupted(post: PostExchange, position: StreamPosition): void {
    const entry = post.id === undefined ? undefined : this.#inFlight.get(post.id);
    if (entry === undefined) return;
    this.#options.log.debug({ upstream: this.upstream, method: post.method }, 'response stream ended early, resuming');
    entry.stream = new ReconnectingStream({
      ...this.#streamParts(position),
      decide: afterResumedStreamEnd,
      onText: (text) => this.#read(text, post),
      onAttempt: () => undefined,
      onEnd: (why) => this.#onNotResumed(post, why),
    });
    entry.stream.start(reconnectMs(position.retryMs, 0, Math.random()));
  }

  onFailed(post: PostExchange, error: GatewayError): void {
    this.#settle(post);
    if (post.id !== undefined) {
      this.#events.onSendFailed(post.id, error);
    } else if (!this.#isClosed) {
      this.#options.log.warn(
        { upstream: this.upstream, method: post.method, err: error },
        'message not delivered to the upstream',
      );
    }
  }

  #post(message: Outgoing): void {
    if (this.#isClosed) return;
    const { id, method } = message;
    const isRequest = id !== undefined;
    const post = new PostExchange(this, id, method, isRequest);
    if (isRequest) this.#inFlight.set(id, { post, stream: undefined });
    else this.#otherPosts.add(post);
    const { firstByteMs, callMs } = this.#options.timeouts;
    // A server may send the headers with its answer. The connection ends late calls with forget().
    const headersMs = isRequest ? Math.max(firstByteMs, callMs + RESPONSE_MARGIN_MS) : firstByteMs;
    const request = this.#session.post(message.text, headersMs, isRequest ? 0 : firstByteMs, message.trace);
    this.#options.wire.dispatch(request, post);
  }

  /** Removes an ended POST, and lets the messages continue that wait for it. */
  #settle(post: PostExchange): void {
    if (post.id !== undefined && this.#inFlight.get(post.id)?.post === post) this.#inFlight.delete(post.id);
    this.#otherPosts.delete(post);
    // After `notifications/initialized` was accepted, messages wait for the server's stream as well.
    if (this.#listenTimer === undefined) this.#handshakeQueue.onAccepted(post.method);
    if (this.#otherPosts.size === 0) this.#onOtherPostsDone?.();
  }

  #read(text: string, about: PostExchange | undefined): void {
    readMessages(
      text,
      (message) => this.#deliver(message, about),
      (error) => this.#onMalformed(error, about),
    );
  }

  #deliver(message: Message, about: PostExchange | undefined): void {
    if (this.#isClosed) return;
    if (message.kind === 'result' || message.kind === 'error') {
      this.#onAnswer(message, about);
    } else {
      this.#events.onMessage(message, about?.isAnswered === true ? undefined : about?.id);
    }
  }

  #onAnswer(response: Response, about: PostExchange | undefined): void {
    const id = about === undefined ? Number(response.id) : about.id;
    const entry = id === undefined ? undefined : this.#inFlight.get(id);
    // On the stream of a request, only the answer to that request is accepted.
    const isOwn = about === undefined || response.id === String(id) || response.id === 'null';
    if (id === undefined || entry === undefined || !isOwn) {
      this.#options.log.warn(
        { upstream: this.upstream, method: about?.method },
        'answer to an unknown request dropped',
      );
      about?.blockSocketReuse();
      return;
    }
    if (response.id === 'null') about?.blockSocketReuse();
    this.#inFlight.delete(id);
    entry.stream?.close();
    entry.post.markAnswered();
    // The stream of the POST may stay open, so close() has to find it.
    if (entry.stream === undefined && !entry.post.hasEnded) this.#otherPosts.add(entry.post);
    this.#events.onMessage(response.id === 'null' ? { ...response, id: String(id) } : response, about?.id);
  }

  #onMalformed(error: MessageError, about: PostExchange | undefined): void {
    this.#options.log.warn(
      { upstream: this.upstream, method: about?.method, err: error },
      'invalid message of the upstream dropped',
    );
    if (error.limit !== undefined) this.#options.onLimit?.(error.limit);
    about?.blockSocketReuse();
    // Text that is not JSON was most likely the answer. A malformed message with another id was not.
    if (about?.id === undefined || about.isAnswered) return;
    const isWhole = error.code === RPC.parseError || (error.refused !== undefined && error.limit !== 'requestIdChars');
    if (!isWhole && error.id !== String(about.id)) return;
    const failure = malformedAnswer(this.upstream, error);
    const stream = this.#inFlight.get(about.id)?.stream;
    if (stream === undefined) {
      about.fail(failure);
    } else {
      stream.close();
      this.onFailed(about, failure);
    }
  }

  #onNotResumed(post: PostExchange, why: Exclude<NextStep, { kind: 'again' }>): void {
    if (why.kind === 'session-lost') {
      this.#settle(post);
      // Unlike a POST that was answered 404, this request has reached the upstream.
      if (post.id !== undefined) this.#events.onSendFailed(post.id, this.#sessionLostError());
      this.#finish(this.#sessionLostError());
      return;
    }
    const { upstream } = this;
    const { reason } = why;
    const message = `upstream "${upstream}" broke the stream of the answer, and it could not be resumed`;
    const isItsOwn = reason?.code === 'upstream-protocol' || reason?.code === 'too-large';
    this.onFailed(post, isItsOwn ? reason : new GatewayError('upstream-lost', { upstream, message }, reason));
  }

  /** Releases the queued messages when the server's stream is open, or after the wait for it. */
  #releaseHandshakeQueue(): void {
    clearTimeout(this.#listenTimer);
    this.#handshakeQueue.onAccepted(INITIALIZED);
  }

  #openServerStream(): void {
    if (this.#serverStream !== undefined || this.#isClosed) return;
    this.#serverStream = new ReconnectingStream({
      ...this.#streamParts({ lastEventId: '', retryMs: undefined }),
      decide: afterServerStreamEnd,
      onText: (text) => this.#read(text, undefined),
      onAttempt: () => this.#releaseHandshakeQueue(),
      onEnd: (why) => {
        const { log } = this.#options;
        if (why.kind === 'session-lost') this.#finish(this.#sessionLostError());
        else if (why.reason === undefined) log.debug({ upstream: this.upstream }, 'upstream offers no GET stream');
        else log.warn({ upstream: this.upstream, err: why.reason }, 'GET stream of the upstream is not opened again');
      },
    });
    this.#serverStream.start(0);
  }

  #streamParts(position: StreamPosition) {
    const { upstream, messageBytes } = this;
    return {
      upstream,
      messageBytes,
      position,
      open: (get: WireHandler, at: StreamPosition) => {
        this.#options.wire.dispatch(this.#session.get(at), get);
      },
      inSession: () => this.#session.id !== undefined,
    };
  }

  #protocolError(problem: string): GatewayError {
    const { upstream } = this;
    return new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" ${problem}` });
  }

  /** Returns the error for requests in flight when the session is lost: they may have run. */
  #sessionLostError(): GatewayError {
    const { upstream } = this;
    const message = `upstream "${upstream}" forgot our session, as after a restart`;
    return new GatewayError('upstream-session-lost', {
      upstream,
      message,
      executed: 'unknown',
      retryable: false,
    });
  }

  /** Fails a message that the upstream refused because it does not know the session, and closes the transport. */
  #onSessionUnknown(post: PostExchange): void {
    const { upstream } = this;
    this.#settle(post);
    if (post.id !== undefined) {
      const message = `upstream "${upstream}" forgot our session and refused the request; try again`;
      this.#events.onSendFailed(post.id, new GatewayError('upstream-session-lost', { upstream, message }));
    }
    this.#finish(this.#sessionLostError());
  }

  #finish(error: GatewayError): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancelRequests();
    for (const post of this.#otherPosts) post.cancel();
    this.#otherPosts.clear();
    this.#events.onClose(error);
  }

  #cancelRequests(): void {
    clearTimeout(this.#listenTimer);
    this.#serverStream?.close();
    for (const { post, stream } of this.#inFlight.values()) {
      post.cancel();
      stream?.close();
    }
    this.#inFlight.clear();
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRequests();
    await this.#awaitOtherPosts(CLOSE_MS);
    for (const post of this.#otherPosts) post.cancel();
    this.#otherPosts.clear();
    if (this.#session.id !== undefined) await deleteSession(this.#options.wire, this.#session.delete(), CLOSE_MS);
    const { upstream } = this;
    const message = `the connection to upstream "${upstream}" was closed`;
    this.#events.onClose(new GatewayError('upstream-lost', { upstream, message }));
  }

  /** Waits for the delivery of messages without an answer, such as a cancellation, at most this long. */
  async #awaitOtherPosts(limitMs: number): Promise<void> {
    for (const post of this.#otherPosts) {
      if (!post.isAnswered) continue;
      post.cancel();
      this.#otherPosts.delete(post);
    }
    if (this.#otherPosts.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onOtherPostsDone = resolve;
    const timer = setTimeout(resolve, limitMs);
    await promise;
    clearTimeout(timer);
  }
}

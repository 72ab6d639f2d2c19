import { malformedAnswer, oversizedAnswer, wasAnswerTo } from '../rpc/malformed-answer.ts';
import type { DroppedMessages } from '../rpc/dropped-messages.ts';
import { sentBackId } from '../rpc/request-ids.ts';
import type { Logger } from 'pino';

import type { HttpTarget, UpstreamTimeouts } from '../../config/values/upstream-config.ts';
import { type GatewayError, upstreamError } from '../../errors.ts';
import type { StreamPosition } from '../../protocol/framing/event-stream.ts';
import type { OversizedMessage } from '../../protocol/framing/oversized-message.ts';
import type { Message, MessageError, Response } from '../../protocol/jsonrpc.ts';
import type { Revision } from '../../protocol/revisions.ts';
import { Cookies } from './cookies.ts';
import { deleteSession } from './delete-session.ts';
import { interpretErrorResponse, type ErrorResponse, mayLackSession, type RefusalOutcome } from './http-failure.ts';
import type { ReadingOptions } from './http-get.ts';
import { sessionIdOf } from './http-headers.ts';
import { readMessages } from './http-messages.ts';
import { INITIALIZED, HandshakeQueue } from './handshake-queue.ts';
import { OpenPosts } from './open-posts.ts';
import type { UndeliveredMessages } from './undelivered-messages.ts';
import { UpstreamPost, type UpstreamPostHandler } from './http-post.ts';
import { HttpSession } from './http-session.ts';
import { SessionCheck } from './session-check.ts';
import {
  type NextStep,
  reconnectMs,
  afterResumedStreamEnd,
  afterServerStreamEnd,
  ReconnectingStream,
} from './http-stream.ts';
import {
  closedError,
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  type UpstreamSession,
} from '../rpc/transport.ts';
import type { ResponseHeaders, Wire, WireHandler } from '../../http1/wire.ts';

export interface HttpOptions extends ReadingOptions {
  readonly timeouts: UpstreamTimeouts;
  /** Bounds the messages without an answer that the upstream has not accepted. */
  readonly undelivered: UndeliveredMessages;
  readonly dropped: DroppedMessages;
  /** Names the upstream in each line. */
  readonly log: Logger;
  /** Shared by all transports with the same credentials. The transport does not destroy it. */
  readonly wire: Wire;
  /** `linkspan/<version>` */
  readonly userAgent: string;
}

/** Longest wait in `close`, once for messages in flight and once for the DELETE. */
const CLOSE_MS = 1_000;

/** Longest wait of the first call for the server's stream. Some servers send no headers before the first event. */
const LISTEN_MS = 250;

/**
 * Returns the transport for Streamable HTTP of the legacy era. Starting sends nothing: `initialize` is a message like any other.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
 */
export function httpTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return (events) => Promise.resolve(new HttpTransport(target, options, events));
}

class HttpTransport implements Transport, UpstreamPostHandler {
  readonly options: HttpOptions;
  readonly #events: TransportEvents;
  readonly #session: HttpSession;
  readonly #handshakeQueue: HandshakeQueue;
  readonly #posts: OpenPosts;
  readonly #check: SessionCheck;
  #serverStream: ReconnectingStream | undefined;
  /** Set when `notifications/initialized` is accepted. */
  #listenTimer: NodeJS.Timeout | undefined;
  /** True if another connection continues the session. */
  #isLeft = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    this.#handshakeQueue = new HandshakeQueue((message) => this.#post(message), options.onLimit);
    this.options = options;
    this.#posts = new OpenPosts(options.undelivered);
    this.#events = events;
    this.#check = new SessionCheck(
      (ping) => this.#post(ping),
      (id) => this.#posts.cancel(id),
    );
    this.#session = new HttpSession(target, options.userAgent, new Cookies(target.url, options.onLimit));
  }

  send(message: Outgoing): void {
    if (!this.#isClosed) this.#handshakeQueue.send(message);
  }

  forget(id: number): 'unsent' | undefined {
    this.#check.forget(id);
    return this.#posts.cancel(id) ?? this.#handshakeQueue.forget(id);
  }

  get mayKeepState(): boolean {
    return this.#session.id !== undefined;
  }

  get session(): UpstreamSession | undefined {
    const { id, cookies } = this.#session;
    return id === undefined ? undefined : { id, cookies };
  }

  setRevision(revision: Revision): void {
    this.#session.setRevision(revision);
  }

  attach({ id, cookies }: UpstreamSession, revision: Revision): void {
    this.#session.keepCookies({ 'set-cookie': [...cookies] });
    this.#session.setId(id);
    this.#session.setRevision(revision);
    // As after `initialize`, the first message waits for the server's stream.
    this.#handshakeQueue.hold();
    this.#openServerStream();
    this.#listenTimer = setTimeout(() => this.#releaseHandshakeQueue(), LISTEN_MS);
  }

  setLeft(isLeft: boolean): void {
    this.#isLeft = isLeft;
    if (!isLeft) return;
    // Many servers allow one such stream for each session.
    this.#serverStream?.close();
    const event = 'accepted the request with HTTP 202, and another process has its stream for the answer now';
    this.#posts.failElsewhere(upstreamError('upstream-lost', this.options.upstream, event));
  }

  pause(forMs: number, about: number | undefined): void {
    const isPaused = this.#posts.pause(about, forMs) ?? this.#pauseOtherStreams(forMs);
    if (isPaused) this.options.onLimit?.('notificationsPerSecond');
  }

  /** Pauses the server's stream, and the streams of answered POSTs. */
  #pauseOtherStreams(forMs: number): boolean {
    const isPaused = this.#serverStream?.pause(forMs) === true;
    return this.#posts.pauseAnswered(forMs) || isPaused;
  }

  close(): Promise<void> {
    this.#closing ??= this.#isClosed ? Promise.resolve() : this.#close();
    return this.#closing;
  }

  onHeaders(headers: ResponseHeaders): void {
    this.#session.keepCookies(headers);
  }

  onAccepted(post: UpstreamPost, headers: ResponseHeaders): void {
    if (post.method === 'initialize') {
      const { id, problem, limit } = sessionIdOf(headers);
      if (id !== undefined) this.#session.setId(id);
      if (limit !== undefined) this.options.onLimit?.(limit);
      if (problem !== undefined) post.fail(upstreamError('upstream-protocol', this.options.upstream, problem));
    } else if (post.method === INITIALIZED) {
      this.#openServerStream();
      this.#listenTimer = setTimeout(() => this.#releaseHandshakeQueue(), LISTEN_MS);
    }
  }

  mayAnswerElsewhere(): boolean {
    return this.#serverStream?.isClosed === false;
  }

  onText(post: UpstreamPost, text: string): void {
    this.#read(text, post);
  }

  onDone(post: UpstreamPost): void {
    this.#settle(post);
  }

  onRefused(post: UpstreamPost, refused: ErrorResponse): boolean {
    const inSession = !this.#isClosed && this.#session.id !== undefined && post.method !== 'initialize';
    const refusal = interpretErrorResponse(this.options.upstream, refused, post.id, post.method, inSession);
    switch (refusal.kind) {
      case 'session-lost':
        this.#onSessionUnknown(post);
        return false;
      case 'session-doubted': {
        const { mayHaveRun, outcome } = refusal;
        this.#check.hold({ id: post.id, mayHaveRun, passOn: () => this.#conclude(post, outcome) });
        return false;
      }
      case 'answer':
      case 'failed':
        return this.#conclude(post, refusal);
    }
  }

  /** Ends a refused POST. Returns whether the body was its answer. */
  #conclude(post: UpstreamPost, outcome: RefusalOutcome): boolean {
    if (outcome.kind === 'failed') {
      this.onFailed(post, outcome.error);
      return false;
    }
    this.#settle(post);
    if (this.#check.isPing(post.id)) this.#check.passOn();
    else if (post.id !== undefined) this.#events.onMessage(outcome.response, post.id);
    return outcome.isNamed;
  }

  onInterrupted(post: UpstreamPost, position: StreamPosition): void {
    const open = this.#posts.get(post.id);
    if (open === undefined) return;
    this.options.log.debug({ method: post.method }, 'response stream ended early, resuming');
    open.stream = new ReconnectingStream({
      ...this.#streamParts(position),
      decide: afterResumedStreamEnd,
      onText: (text) => this.#read(text, post),
      onEnd: (why) => this.#onNotResumed(post, why),
    });
    open.stream.start(reconnectMs(position.retryMs, 0, Math.random()));
  }

  onFailed(post: UpstreamPost, error: GatewayError): void {
    this.#settle(post);
    if (this.#check.isPing(post.id)) {
      this.#check.passOn();
    } else if (post.id !== undefined) {
      this.#events.onSendFailed(post.id, error);
    } else if (!this.#isClosed) {
      this.options.log.warn({ method: post.method, err: error }, 'message not delivered to the upstream');
    }
  }

  #post(message: Outgoing): void {
    if (this.#isClosed) return;
    const isRequest = message.id !== undefined;
    const post = new UpstreamPost(this, message, isRequest);
    if (!this.#posts.add(post)) return message.onDropped?.();
    // A server may send the headers with its answer. The connection ends late calls with forget().
    const silentMs = isRequest ? 0 : this.options.timeouts.firstByteMs;
    this.options.wire.dispatch(this.#session.post(message.text, silentMs, message.trace), post);
  }

  /** Removes an ended POST, and lets the messages continue that wait for it. */
  #settle(post: UpstreamPost): void {
    this.#posts.remove(post);
    // After `notifications/initialized` was accepted, messages wait for the server's stream as well.
    if (this.#listenTimer === undefined) this.#handshakeQueue.onAccepted(post.method);
  }

  #read(text: string, about: UpstreamPost | undefined): void {
    readMessages(
      text,
      (message) => this.#deliver(message, about),
      (error) => this.#onMalformed(error, about),
    );
  }

  #deliver(message: Message, about: UpstreamPost | undefined): void {
    if (this.#isClosed) return;
    if (message.kind === 'result' || message.kind === 'error') {
      this.#onAnswer(message, about);
    } else {
      this.#events.onMessage(message, about?.isAnswered === true ? undefined : about?.id);
    }
  }

  #onAnswer(response: Response, about: UpstreamPost | undefined): void {
    const sentBack = sentBackId(response.id);
    const id = about === undefined ? sentBack : about.id;
    // On the stream of a request, only the answer to that request is accepted.
    const isOwn = about === undefined || sentBack === id || response.id === 'null';
    if (id === undefined || !isOwn || !this.#posts.markAnswered(id)) {
      this.options.dropped.logUnknownAnswer(about?.method);
      about?.blockSocketReuse();
      this.#events.onDropped(about?.id);
      return;
    }
    if (response.id === 'null') about?.blockSocketReuse();
    const isPing = this.#check.isPing(id);
    if (response.kind === 'error' && this.#session.id !== undefined && mayLackSession(response.error)) {
      if (isPing) this.#onSessionUnknown();
      else this.#check.ask();
    }
    if (isPing) {
      this.#check.passOn();
      return;
    }
    this.#events.onMessage(response.id === 'null' ? { ...response, id: String(id) } : response, about?.id);
  }

  #onMalformed(error: MessageError, about: UpstreamPost | undefined): void {
    this.options.dropped.logMalformed(about?.method, error);
    if (error.limit !== undefined) this.options.onLimit?.(error.limit);
    about?.blockSocketReuse();
    this.#events.onDropped(about?.id);
    // On the server's stream, an answer names its request.
    const post = about ?? this.#posts.get(sentBackId(error.id))?.post;
    if (post?.id === undefined || post.isAnswered || !wasAnswerTo(post.id, error)) return;
    this.#failAnswered(post, malformedAnswer(this.options.upstream, error));
  }

  #onOversized(message: OversizedMessage): boolean {
    const id = message.answeredId();
    if (id === undefined) return false;
    const error = oversizedAnswer(this.options.upstream, this.options.messageBytes);
    this.options.dropped.logMalformed(undefined, error);
    this.#events.onDropped(undefined);
    const post = this.#posts.get(id)?.post;
    if (post?.isAnswered === false) this.#failAnswered(post, error);
    const request = message.requestId();
    if (request !== undefined) this.#events.onUnreadRequest?.(request);
    return true;
  }

  #failAnswered(post: UpstreamPost, failure: GatewayError): void {
    const stream = this.#posts.get(post.id)?.stream;
    if (stream === undefined) {
      post.fail(failure);
    } else {
      stream.close();
      this.onFailed(post, failure);
    }
  }

  #onNotResumed(post: UpstreamPost, why: Exclude<NextStep, { kind: 'again' }>): void {
    if (why.kind === 'session-lost') {
      this.#settle(post);
      // Unlike a POST that was answered 404, this request has reached the upstream.
      if (post.id !== undefined) this.#events.onSendFailed(post.id, this.#sessionLostError());
      this.#onSessionUnknown();
      return;
    }
    const { upstream } = this.options;
    const { reason, limit } = why;
    if (limit !== undefined) this.options.onLimit?.(limit);
    const event = 'broke the stream of the answer, and it could not be resumed';
    const isItsOwn = reason?.code === 'upstream-protocol' || reason?.code === 'too-large';
    this.onFailed(post, isItsOwn ? reason : upstreamError('upstream-lost', upstream, event, {}, reason));
  }

  /** Releases the queued messages when the server's stream is open, or after the wait for it. */
  #releaseHandshakeQueue(): void {
    clearTimeout(this.#listenTimer);
    this.#handshakeQueue.onAccepted(INITIALIZED);
  }

  #openServerStream(): void {
    if (this.#serverStream !== undefined || this.#isClosed) return;
    const { log, upstream } = this.options;
    this.#serverStream = new ReconnectingStream({
      ...this.#streamParts({ lastEventId: '', retryMs: undefined }),
      decide: afterServerStreamEnd,
      onText: (text) => this.#read(text, undefined),
      onOversized: (message) => this.#onOversized(message),
      onAttempt: () => this.#releaseHandshakeQueue(),
      onGap: () => this.#events.onGap?.(),
      onRefused: (err) => log.warn({ err }, 'GET stream of the upstream is opened again later'),
      onEnd: (why) => {
        if (why.kind === 'session-lost') {
          this.#onSessionUnknown();
          return;
        }
        if (why.reason === undefined) log.debug('upstream offers no GET stream');
        else log.warn({ err: why.reason }, 'GET stream of the upstream is not opened again');
        const event = 'accepted the request with HTTP 202, and has no stream for the answer';
        this.#posts.failElsewhere(upstreamError('upstream-lost', upstream, event, {}, why.reason));
        if (why.hadStream === true && this.#session.id !== undefined) this.#check.ask();
      },
    });
    this.#serverStream.start(0);
  }

  #streamParts(position: StreamPosition) {
    return {
      options: this.options,
      position,
      open: (get: WireHandler, at: StreamPosition) => {
        this.options.wire.dispatch(this.#session.get(at), get);
      },
      onHeaders: (headers: ResponseHeaders) => this.onHeaders(headers),
      inSession: () => this.#session.id !== undefined,
    };
  }

  /** Returns the error for requests in flight when the session is lost: they may have run. */
  #sessionLostError(): GatewayError {
    const event = 'forgot our session, as after a restart';
    const detail = { executed: 'unknown', retryable: false } as const;
    return upstreamError('upstream-session-lost', this.options.upstream, event, detail);
  }

  /** Fails the requests that the upstream has refused or not got, because it does not know the session. Closes the transport. */
  #onSessionUnknown(post?: UpstreamPost): void {
    const event = 'forgot our session and refused the request; try again';
    const own = this.#check.isPing(post?.id) ? [] : [post?.id];
    const doubted = this.#check.end().flatMap(({ id, mayHaveRun }) => (mayHaveRun ? [] : [id]));
    // Requests that wait for the end of the handshake were not sent either.
    const refused = [...this.#handshakeQueue.drop(), ...doubted, ...own].filter((id) => id !== undefined);
    if (post !== undefined) this.#settle(post);
    for (const id of refused)
      this.#events.onSendFailed(id, upstreamError('upstream-session-lost', this.options.upstream, event));
    this.#finish(this.#sessionLostError());
  }

  #finish(error: GatewayError): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancelRequests();
    this.#posts.cancelOthers();
    this.#events.onClose(error);
  }

  #cancelRequests(): void {
    clearTimeout(this.#listenTimer);
    this.#check.end();
    this.#serverStream?.close();
    this.#posts.cancelRequests();
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRequests();
    await this.#posts.awaitDelivery(CLOSE_MS);
    this.#posts.cancelOthers();
    if (this.#session.id !== undefined && !this.#isLeft)
      await deleteSession(this.options.wire, this.#session.delete(), CLOSE_MS);
    this.#events.onClose(closedError(this.options.upstream));
  }
}

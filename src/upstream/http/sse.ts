import { malformedAnswer, oversizedAnswer } from '../rpc/malformed-answer.ts';
import { sentBackId } from '../rpc/request-ids.ts';
import type { HttpTarget } from '../../config/values/upstream-config.ts';
import { resultOrLate, resultUnlessAborted } from '../../deadline.ts';
import { GatewayError, upstreamError } from '../../errors.ts';
import type { OversizedMessage } from '../../protocol/framing/oversized-message.ts';
import type { MessageError } from '../../protocol/jsonrpc.ts';
import type { Revision } from '../../protocol/revisions.ts';
import { Cookies } from './cookies.ts';
import type { HttpOptions } from './http.ts';
import { interpretErrorResponse, type ErrorResponse, statusFailure } from './http-failure.ts';
import { EventGet, type StreamEnd } from './http-get.ts';
import { readMessages } from './http-messages.ts';
import { HandshakeQueue } from './handshake-queue.ts';
import { UpstreamPost, type UpstreamPostHandler } from './http-post.ts';
import { HttpSession } from './http-session.ts';
import { OpenPosts } from './open-posts.ts';
import type { ResponseHeaders } from '../../http1/wire.ts';
import {
  closedError,
  disconnectedError,
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
} from '../rpc/transport.ts';

/**
 * Returns the transport for HTTP+SSE of 2024-11-05. All messages of the server arrive on one stream, which is opened first. Its
 * first event names the URL for POSTs.
 *
 * @see https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
 */
export function sseTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return async (events, signal) => {
    const transport = new SseTransport(target, options, events);
    await transport.start(signal);
    return transport;
  };
}

const MAX_ENDPOINT_CHARS = 2_048;

class SseTransport implements Transport, UpstreamPostHandler {
  readonly options: HttpOptions;
  readonly #target: HttpTarget;
  readonly #events: TransportEvents;
  readonly #cookies: Cookies;
  #stream: EventGet | undefined;
  /** True if the GET was sent again. */
  #isRepeated = false;
  readonly #streamSession: HttpSession;
  readonly #posts: OpenPosts;
  readonly #handshakeQueue: HandshakeQueue;
  readonly #endpointNamed = Promise.withResolvers<void>();
  #endpoint: HttpSession | undefined;
  /** Messages that came in one piece with the endpoint, before the caller can send answers. Undefined from then on. */
  #early: string[] | undefined = [];
  #isClosed = false;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    this.#handshakeQueue = new HandshakeQueue((message) => this.#post(message), options.onLimit);
    this.#target = target;
    this.options = options;
    this.#posts = new OpenPosts(options.undelivered);
    this.#events = events;
    this.#cookies = new Cookies(target.url, options.onLimit);
    this.#streamSession = new HttpSession(target, options.userAgent, this.#cookies);
  }

  #openStream(): void {
    const position = { lastEventId: '', retryMs: undefined };
    this.#stream = new EventGet(this.options, position, {
      onHeaders: (headers) => this.#streamSession.keepCookies(headers),
      onEvent: (type, data) => this.#onEvent(type, data),
      onOversized: (message) => this.#onOversized(message),
      onEnd: (end) => this.#onEnd(end),
    });
    this.options.wire.dispatch(this.#streamSession.get(position), this.#stream);
  }

  /** Opens the stream. Resolves when the server has named its endpoint. @throws {GatewayError} */
  async start(signal: AbortSignal): Promise<void> {
    const { upstream, timeouts } = this.options;
    const limitMs = timeouts.connectMs + timeouts.firstByteMs;
    const event = `did not name its endpoint within ${limitMs / 1_000} s`;
    const late = () => upstreamError('upstream-unavailable', upstream, event);
    this.#openStream();
    try {
      const aborted = () => disconnectedError(upstream, signal);
      await resultOrLate(resultUnlessAborted(this.#endpointNamed.promise, signal, aborted), limitMs, late);
    } catch (thrown) {
      this.#isClosed = true;
      this.#stream?.cancel();
      throw thrown;
    }
    // The caller has the transport by then.
    setImmediate(() => this.#readEarly());
  }

  #readEarly(): void {
    const texts = this.#early ?? [];
    this.#early = undefined;
    for (const text of texts) if (!this.#isClosed) this.#read(text);
  }

  send(message: Outgoing): void {
    if (!this.#isClosed) this.#handshakeQueue.send(message);
  }

  forget(id: number): 'unsent' | undefined {
    return this.#posts.cancel(id) ?? this.#handshakeQueue.forget(id);
  }

  setRevision(revision: Revision): void {
    this.#endpoint?.setRevision(revision);
  }

  pause(forMs: number): void {
    if (this.#stream?.pause(forMs) === true) this.options.onLimit?.('notificationsPerSecond');
  }

  close(): Promise<void> {
    this.#finish(closedError(this.options.upstream));
    return Promise.resolve();
  }

  onHeaders(headers: ResponseHeaders): void {
    this.#endpoint?.keepCookies(headers);
  }

  onAccepted(post: UpstreamPost): void {
    this.#handshakeQueue.onAccepted(post.method);
  }

  onText(_post: UpstreamPost, text: string): void {
    this.#read(text);
  }

  onDone(post: UpstreamPost): void {
    this.#settle(post);
  }

  onRefused(post: UpstreamPost, refused: ErrorResponse): boolean {
    const refusal = interpretErrorResponse(this.options.upstream, refused, post.id, post.method, false);
    if (refusal.kind === 'answer') {
      this.#settle(post);
      this.#events.onMessage(refusal.response, undefined);
      return refusal.isNamed;
    }
    this.onFailed(post, refusal.kind === 'failed' ? refusal.error : statusFailure(this.options.upstream, refused));
    return false;
  }

  onFailed(post: UpstreamPost, error: GatewayError): void {
    this.#settle(post);
    if (post.id !== undefined) this.#events.onSendFailed(post.id, error);
    else this.options.log.warn({ method: post.method, err: error }, 'message not delivered to the upstream');
  }

  #post(message: Outgoing): void {
    if (this.#endpoint === undefined || this.#isClosed) return;
    const post = new UpstreamPost(this, message, false);
    if (!this.#posts.add(post)) return message.onDropped?.();
    // Some servers accept a request only when they have answered it. The connection ends late calls with forget().
    const silentMs = message.id === undefined ? this.options.timeouts.firstByteMs : 0;
    this.options.wire.dispatch(this.#endpoint.post(message.text, silentMs, message.trace), post);
  }

  #settle(post: UpstreamPost): void {
    this.#posts.remove(post);
    this.#handshakeQueue.onAccepted(post.method);
  }

  #onEvent(type: string, data: string): void {
    if (type === 'message' && data !== '') {
      if (this.#endpoint === undefined || this.#early === undefined) this.#read(data);
      else this.#early.push(data);
    } else if (type === 'endpoint' && this.#endpoint === undefined) this.#setEndpoint(data);
  }

  #setEndpoint(endpoint: string): void {
    const { upstream } = this.options;
    const ownUrl = this.#target.url;
    // The time to parse a host grows with the square of its length.
    const url = endpoint.length > MAX_ENDPOINT_CHARS ? null : URL.parse(endpoint.trim(), ownUrl);
    if (url === null || url.origin !== new URL(ownUrl).origin) {
      // POSTs carry our credentials, so another origin would get them.
      const event = 'named an endpoint that is not on its own origin';
      this.#endpointNamed.reject(upstreamError('upstream-protocol', upstream, event, { executed: 'no' }));
      return;
    }
    this.#endpoint = new HttpSession(this.#target, this.options.userAgent, this.#cookies, url.href);
    this.#endpointNamed.resolve();
  }

  #read(text: string): void {
    readMessages(
      text,
      (message) => {
        if (this.#isClosed) return;
        if (message.kind === 'result' || message.kind === 'error') this.#posts.markAnswered(sentBackId(message.id));
        this.#events.onMessage(message, undefined);
      },
      (error) => this.#onMalformed(error),
    );
  }

  /** Fails the request that a malformed message answers, if the message has its id. */
  #onMalformed(error: MessageError): void {
    this.options.dropped.logMalformed(undefined, error);
    if (error.limit !== undefined) this.options.onLimit?.(error.limit);
    this.#failAnswered(sentBackId(error.id), malformedAnswer(this.options.upstream, error));
  }

  #onOversized(message: OversizedMessage): boolean {
    const id = message.answeredId();
    if (id === undefined) return false;
    const error = oversizedAnswer(this.options.upstream, this.options.messageBytes);
    this.options.dropped.logMalformed(undefined, error);
    this.#failAnswered(id, error);
    const request = message.requestId();
    if (request !== undefined) this.#events.onUnreadRequest?.(request);
    return true;
  }

  #failAnswered(id: number, error: GatewayError): void {
    this.#events.onDropped(undefined);
    if (this.#isClosed || Number.isNaN(id)) return;
    this.#posts.markAnswered(id);
    this.#events.onSendFailed(id, error, true);
  }

  #onEnd(end: StreamEnd): void {
    // The server may have closed a kept connection at the moment of the request (RFC 9110 §9.2.2).
    if (
      end.kind === 'broken' &&
      end.error.code === 'upstream-lost' &&
      this.#stream?.isOpen === false &&
      !this.#isRepeated
    ) {
      this.#isRepeated = true;
      this.#openStream();
      return;
    }
    const error = this.#errorOf(end);
    if (this.#endpoint !== undefined) {
      this.#finish(error);
      return;
    }
    const code = error.code === 'upstream-lost' ? 'upstream-unavailable' : error.code;
    this.#endpointNamed.reject(new GatewayError(code, { ...error.detail, executed: 'no' }, error.cause));
  }

  #errorOf(end: StreamEnd): GatewayError {
    const { upstream } = this.options;
    switch (end.kind) {
      case 'broken':
      case 'unreadable':
        return end.error;
      case 'refused':
        return statusFailure(upstream, { ...end, body: undefined });
      case 'ended':
        return upstreamError('upstream-lost', upstream, 'ended its event stream');
    }
  }

  #finish(error: GatewayError): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stream?.cancel();
    this.#posts.cancelRequests();
    this.#posts.cancelOthers();
    this.#events.onClose(error);
  }
}

import { ArrayMap, ArraySet } from '../../small-collections.ts';
import type { Logger } from 'pino';

import type { HttpTarget, UpstreamTimeouts } from '../../config/config.ts';
import { GatewayError } from '../../errors.ts';
import type { StreamPosition } from '../../protocol/event-stream.ts';
import type { Message, MessageError, Response } from '../../protocol/jsonrpc.ts';
import { deleteSession } from './delete-session.ts';
import { readRefusal, type Refused } from './http-failure.ts';
import { isSessionId } from './http-headers.ts';
import { readMessages } from './http-messages.ts';
import { INITIALIZED, HandshakeQueue } from './handshake-queue.ts';
import { PostExchange, type PostExchangeOwner } from './http-post.ts';
import { HttpSession } from './http-session.ts';
import { type Next, reconnectMs, resumedNext, standingNext, ReconnectingStream } from './http-stream.ts';
import {
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  unlessAborted,
} from '../rpc/transport.ts';
import type { ResponseHeaders, Wire, WireHandler } from '../../http1/wire.ts';

export interface HttpOptions {
  readonly upstream: string;
  readonly timeouts: UpstreamTimeouts;
  readonly messageBytes: number;
  readonly log: Logger;
  /** Opened by a `WireOpener`, shared by all transports with the same credentials, and not ours to end. */
  readonly wire: Wire;
  /** `linkspan/<version>` */
  readonly userAgent: string;
  /** Is called when the upstream is held up since it sends too much. */
  readonly onPause?: () => void;
}

/** What `close` may take twice: for messages still on their way, and for the DELETE. */
const CLOSE_MS = 1_000;

/** How long a call may take is for whoever waits for it, who says so better: here only what is not waited for any more ends. */
export const LATE_MS = 1_000;

/** A first call waits so long for the server's own stream: some servers send no headers before they have something to say. */
const LISTEN_MS = 250;

/**
 * Streamable HTTP, all revisions with sessions. Starting sends nothing: `initialize` is a message like any other.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
 */
export function httpTransport(target: HttpTarget, options: HttpOptions): StartTransport {
  return (events, signal) => unlessAborted(options.upstream, signal, () => new HttpTransport(target, options, events));
}

class HttpTransport implements Transport, PostExchangeOwner {
  readonly upstream: string;
  readonly messageBytes: number;
  readonly #options: HttpOptions;
  readonly #events: TransportEvents;
  readonly #session: HttpSession;
  readonly #outbox = new HandshakeQueue((message) => this.#post(message));
  /** Where the answer to each request is awaited: the POST, or the stream that took its place. */
  readonly #inFlight = new ArrayMap<number, { readonly post: PostExchange; stream: ReconnectingStream | undefined }>();
  /** POSTs no answer is awaited from. */
  readonly #others = new ArraySet<PostExchange>();
  #standing: ReconnectingStream | undefined;
  /** Set once `initialized` was accepted. */
  #listening: NodeJS.Timeout | undefined;
  #isOver = false;
  #closing: Promise<void> | undefined;
  #onQuiet: (() => void) | undefined;

  constructor(target: HttpTarget, options: HttpOptions, events: TransportEvents) {
    this.upstream = options.upstream;
    this.messageBytes = options.messageBytes;
    this.#options = options;
    this.#events = events;
    this.#session = new HttpSession(target, options.userAgent);
  }

  send(message: Outgoing): void {
    if (!this.#isOver) this.#outbox.send(message);
  }

  forget(id: number): void {
    this.#outbox.forget(id);
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
      entry === undefined ? this.#pauseOthers(forMs) : (entry.stream?.pause(forMs) ?? entry.post.pause(forMs));
    if (isPaused) this.#options.onPause?.();
  }

  /** Pauses the upstream's own stream, and those of POSTs that go on after their answer. */
  #pauseOthers(forMs: number): boolean {
    let isPaused = this.#standing?.pause(forMs) === true;
    for (const post of this.#others) if (post.pause(forMs)) isPaused = true;
    return isPaused;
  }

  close(): Promise<void> {
    this.#closing ??= this.#isOver ? Promise.resolve() : this.#close();
    return this.#closing;
  }

  onAccepted(post: PostExchange, headers: ResponseHeaders): void {
    if (post.method === 'initialize') {
      const sessionId = headers['mcp-session-id'];
      if (isSessionId(sessionId)) {
        this.#session.setId(sessionId);
      } else if (sessionId !== undefined) {
        post.fail(this.#protocol('gave out a session id that is not visible ASCII'));
      }
    } else if (post.method === INITIALIZED) {
      this.#listen();
      this.#listening = setTimeout(() => this.#onListenEnd(), LISTEN_MS);
    }
  }

  onText(post: PostExchange, text: string): void {
    this.#read(text, post);
  }

  onDone(post: PostExchange): void {
    this.#settle(post);
  }

  onRefused(post: PostExchange, refused: Refused): boolean {
    const inSession = this.#session.id !== undefined && post.method !== 'initialize';
    const refusal = readRefusal(this.upstream, refused, post.id, post.method, inSession);
    switch (refusal.kind) {
      case 'answer':
        this.#settle(post);
        if (post.id !== undefined) this.#events.onMessage(refusal.response, post.id);
        return refusal.isNamed;
      case 'session-lost':
        this.#loseSession(post);
        return false;
      case 'failed':
        this.onFailed(post, refusal.error);
        return false;
    }
  }

  onBroken(post: PostExchange, position: StreamPosition): void {
    const entry = post.id === undefined ? undefined : this.#inFlight.get(post.id);
    if (entry === undefined) return;
    this.#options.log.debug({ upstream: this.upstream, method: post.method }, 'response stream ended early, resuming');
    entry.stream = new ReconnectingStream({
      ...this.#streamParts(position),
      decide: resumedNext,
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
    } else if (!this.#isOver) {
      this.#options.log.warn({ upstream: this.upstream, method: post.method, err: error }, 'message not delivered');
    }
  }

  #post(message: Outgoing): void {
    if (this.#isOver) return;
    const { id, method } = message;
    const isRequest = id !== undefined;
    const post = new PostExchange(this, id, method, isRequest);
    if (isRequest) this.#inFlight.set(id, { post, stream: undefined });
    else this.#others.add(post);
    const { firstByteMs, callMs } = this.#options.timeouts;
    // A server may answer only when it is done. How long a call may take is for whoever calls forget().
    const headersMs = isRequest ? Math.max(firstByteMs, callMs + LATE_MS) : firstByteMs;
    const sent = this.#session.post(message.text, headersMs, isRequest ? 0 : firstByteMs);
    this.#options.wire.dispatch(sent, post);
  }

  /** The POST is over: whatever waited for it goes on. */
  #settle(post: PostExchange): void {
    if (post.id !== undefined && this.#inFlight.get(post.id)?.post === post) this.#inFlight.delete(post.id);
    this.#others.delete(post);
    // Where it was accepted, the others wait for the stream as well.
    if (this.#listening === undefined) this.#outbox.onAccepted(post.method);
    if (this.#others.size === 0) this.#onQuiet?.();
  }

  #read(text: string, about: PostExchange | undefined): void {
    readMessages(
      text,
      (message) => this.#deliver(message, about),
      (error) => this.#onMalformed(error, about),
    );
  }

  #deliver(message: Message, about: PostExchange | undefined): void {
    if (this.#isOver) return;
    if (message.kind === 'result' || message.kind === 'error') {
      this.#answer(message, about);
    } else {
      this.#events.onMessage(message, about?.isAnswered === true ? undefined : about?.id);
    }
  }

  #answer(response: Response, about: PostExchange | undefined): void {
    const id = about === undefined ? Number(response.id) : about.id;
    const entry = id === undefined ? undefined : this.#inFlight.get(id);
    // On a request's own stream only its own answer is believed, so that none can pass for another's.
    const isOwn = about === undefined || response.id === String(id) || response.id === 'null';
    if (id === undefined || entry === undefined || !isOwn) {
      this.#options.log.warn({ upstream: this.upstream, method: about?.method }, 'answer to no request, dropped');
      about?.doubt();
      return;
    }
    if (response.id === 'null') about?.doubt();
    this.#inFlight.delete(id);
    entry.stream?.close();
    entry.post.markAnswered();
    // It may be a while until its stream ends, and close() has to find it.
    if (entry.stream === undefined && !entry.post.hasEnded) this.#others.add(entry.post);
    this.#events.onMessage(response.id === 'null' ? { ...response, id: String(id) } : response, about?.id);
  }

  #onMalformed(error: MessageError, about: PostExchange | undefined): void {
    this.#options.log.warn({ upstream: this.upstream, method: about?.method, err: error }, 'not a message, dropped');
    about?.doubt();
    // What is not even JSON was most likely the answer; anything else with another id was not.
    if (about?.id === undefined || about.isAnswered) return;
    if (error.code !== -32700 && error.refused === undefined && error.id !== String(about.id)) return;
    const failure = this.#protocol('answered with something that is not JSON-RPC', error);
    const stream = this.#inFlight.get(about.id)?.stream;
    if (stream === undefined) {
      about.fail(failure);
    } else {
      stream.close();
      this.onFailed(about, failure);
    }
  }

  #onNotResumed(post: PostExchange, why: Exclude<Next, { kind: 'again' }>): void {
    if (why.kind === 'session-lost') {
      this.#settle(post);
      // Unlike a POST answered 404, this one ran.
      if (post.id !== undefined) this.#events.onSendFailed(post.id, this.#onSessionLost());
      this.#finish(this.#onSessionLost());
      return;
    }
    const { upstream } = this;
    const { reason } = why;
    const message = `upstream "${upstream}" broke the stream of the answer, and it could not be resumed`;
    const isItsOwn = reason?.code === 'upstream-protocol' || reason?.code === 'too-large';
    this.onFailed(post, isItsOwn ? reason : new GatewayError('upstream-lost', { upstream, message }, reason));
  }

  /** From here on nothing the server says can be missed, or the server has had its time. */
  #onListenEnd(): void {
    clearTimeout(this.#listening);
    this.#outbox.onAccepted(INITIALIZED);
  }

  #listen(): void {
    if (this.#standing !== undefined || this.#isOver) return;
    this.#standing = new ReconnectingStream({
      ...this.#streamParts({ lastEventId: '', retryMs: undefined }),
      decide: standingNext,
      onText: (text) => this.#read(text, undefined),
      onAttempt: () => this.#onListenEnd(),
      onEnd: (why) => {
        const { log } = this.#options;
        if (why.kind === 'session-lost') this.#finish(this.#onSessionLost());
        else if (why.reason === undefined)
          log.debug({ upstream: this.upstream }, 'upstream offers no stream of its own');
        else log.warn({ upstream: this.upstream, err: why.reason }, 'stream of the upstream given up');
      },
    });
    this.#standing.start(0);
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

  #protocol(what: string, cause?: unknown): GatewayError {
    const { upstream } = this;
    return new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" ${what}` }, cause);
  }

  /** For whatever was under way: it may have run. */
  #onSessionLost(): GatewayError {
    const { upstream } = this;
    const message = `upstream "${upstream}" forgot our session, as after a restart`;
    return new GatewayError('upstream-session-lost', {
      upstream,
      message,
      executed: 'unknown',
      retryable: false,
    });
  }

  /** The upstream refused this message because it knows no such session. */
  #loseSession(post: PostExchange): void {
    const { upstream } = this;
    this.#settle(post);
    if (post.id !== undefined) {
      const message = `upstream "${upstream}" forgot our session and refused the request; try again`;
      this.#events.onSendFailed(post.id, new GatewayError('upstream-session-lost', { upstream, message }));
    }
    this.#finish(this.#onSessionLost());
  }

  #finish(error: GatewayError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abandon();
    for (const post of this.#others) post.cancel();
    this.#others.clear();
    this.#events.onClose(error);
  }

  #abandon(): void {
    clearTimeout(this.#listening);
    this.#standing?.close();
    for (const { post, stream } of this.#inFlight.values()) {
      post.cancel();
      stream?.close();
    }
    this.#inFlight.clear();
  }

  async #close(): Promise<void> {
    this.#isOver = true;
    this.#abandon();
    await this.#quiet(CLOSE_MS);
    for (const post of this.#others) post.cancel();
    this.#others.clear();
    if (this.#session.id !== undefined) await deleteSession(this.#options.wire, this.#session.delete(), CLOSE_MS);
    const { upstream } = this;
    const message = `the connection to upstream "${upstream}" was closed`;
    this.#events.onClose(new GatewayError('upstream-lost', { upstream, message }));
  }

  /** Messages that ask for no answer, such as a cancellation, are still delivered. */
  async #quiet(limitMs: number): Promise<void> {
    for (const post of this.#others) {
      if (!post.isAnswered) continue;
      post.cancel();
      this.#others.delete(post);
    }
    if (this.#others.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onQuiet = resolve;
    const timer = setTimeout(resolve, limitMs);
    await promise;
    clearTimeout(timer);
  }
}

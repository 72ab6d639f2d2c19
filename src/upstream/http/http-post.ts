import type { Readable } from 'node:stream';
import { GatewayError, upstreamError } from '../../errors.ts';
import { EventReader, type StreamPosition } from '../../protocol/framing/event-stream.ts';
import { oversizedAnswer } from '../rpc/malformed-answer.ts';
import { NotMcpError } from './endpoint-hint.ts';
import { ResponseBody } from './response-body.ts';
import { type ErrorResponse, SESSION_REFUSALS, wireFailure } from './http-failure.ts';
import type { ReadingOptions } from './http-get.ts';
import { compressionOf, mediaType, missingScopes, redirectLocation, retryAfterMs } from './http-headers.ts';
import { type ReceivedMessage, UNCOUNTED_BYTES } from '../rpc/receiving-budget.ts';
import { IgnoredRate } from '../rpc/ignored-rate.ts';
import type { Outgoing } from '../rpc/transport.ts';
import type { ResponseHeaders, WireController, WireHandler } from '../../http1/wire.ts';

/**
 * Receives the events of its POSTs. The last event is `onDone`, `onRefused`, `onInterrupted` or `onFailed`, once, unless the POST
 * was cancelled.
 */
export interface UpstreamPostHandler {
  readonly options: ReadingOptions;
  /** The response has begun, with any status. */
  onHeaders?(headers: ResponseHeaders): void;
  /** The status is 2xx. The body follows. */
  onAccepted?(post: UpstreamPost, headers: ResponseHeaders): void;
  /** Receives the text of a message or batch. Calls `markAnswered` of the POST if it contains the answer. */
  onText(post: UpstreamPost, text: string): void;
  onDone(post: UpstreamPost): void;
  /** Returns whether the server has a stream of its own. On it, some servers answer the requests that they have accepted with 202. */
  mayAnswerElsewhere?(): boolean;
  /** The status is not 2xx. Returns whether the body is nevertheless the JSON-RPC answer to this request. */
  onRefused(post: UpstreamPost, refused: ErrorResponse): boolean;
  /** The event stream has ended before the answer, and can be resumed from `position`. Without this, the POST has failed then. */
  onInterrupted?(post: UpstreamPost, position: StreamPosition): void;
  onFailed(post: UpstreamPost, error: GatewayError): void;
}

/** Longest wait for the end of a response of which nothing is needed any more. If it ends, the socket can be reused. */
const LINGER_MS = 1_000;

const ACCEPTED = 202;

type Stage = 'queued' | 'sent' | 'json' | 'events' | 'refusal' | 'ignored' | 'done';

/** One message to an upstream by POST, with its response. It is never sent twice. */
export class UpstreamPost implements WireHandler {
  readonly id: number | undefined;
  readonly method: string | undefined;
  /** Size of a message without an answer, else 0. */
  readonly bytes: number;
  readonly #handler: UpstreamPostHandler;
  readonly #wantsAnswer: boolean;
  #controller: WireController | undefined;
  #stage: Stage = 'queued';
  #isAnswered = false;
  #hasEnded = false;
  /** True if the response has contained anything that does not belong to this request. */
  #isReuseBlocked = false;
  /** True if the answer comes on the stream of the server, and not in this response. */
  #isAnsweredElsewhere = false;
  /** True if the response has an unexpected JSON body, which may be the answer to another request. */
  #isUnexpectedBody = false;
  #body: ResponseBody | undefined;
  /** The rest of a large compressed body. */
  #pieces: Readable | undefined;
  #reader: EventReader | undefined;
  /** Counts the message that is being received, if it is large. */
  #received: ReceivedMessage | undefined;
  #position: StreamPosition | undefined;
  #refused: ErrorResponse | undefined;
  /** True if the body of the refusal cannot be an answer. */
  #isTextRefusal = false;
  #lingerTimer: NodeJS.Timeout | undefined;

  /** @param wantsAnswer whether the response must contain the answer. */
  constructor(handler: UpstreamPostHandler, { id, method, text }: Outgoing, wantsAnswer: boolean) {
    this.#handler = handler;
    this.id = id;
    this.method = method;
    this.bytes = id === undefined ? Buffer.byteLength(text) : 0;
    this.#wantsAnswer = wantsAnswer;
  }

  /** Returns whether the answer has been received, here or on another stream. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Returns whether the answer is expected on the server's stream. */
  get awaitsOtherStream(): boolean {
    return this.#isAnsweredElsewhere && !this.#isAnswered;
  }

  /**
   * Prevents the reuse of the socket. To be called if the response contains a message that answers another request, or has no id. The bytes
   * after it may answer this request, and would be read as the answer to the next one.
   */
  blockSocketReuse(): void {
    this.#isReuseBlocked = true;
  }

  /** Marks the answer as received, here or on another stream. The rest of the response is read for a short time only. */
  markAnswered(): void {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    if (!this.#hasEnded && !this.#isDone()) this.#linger();
  }

  #linger(): void {
    this.#lingerTimer = setTimeout(() => this.#end(() => this.#handler.onDone(this)), LINGER_MS);
    this.#lingerTimer.unref();
  }

  /** Ends the POST without further events. Returns `unsent` if no byte of it was sent. */
  cancel(): 'unsent' | undefined {
    const isUnsent = this.#stage === 'queued';
    this.#end(() => undefined);
    return isUnsent ? 'unsent' : undefined;
  }

  /** Stops reading the event stream for this long (ms). Returns false if there is none, or reading is already paused. */
  pause(forMs: number): boolean {
    return this.#stage === 'events' && this.#controller?.pause(forMs) === true;
  }

  /** Ends the POST with `onFailed`. */
  fail(error: GatewayError): void {
    this.#end(() => this.#handler.onFailed(this, error));
  }

  onRequestStart(controller: WireController): void {
    if (this.#isDone()) {
      // Cancelled before a byte was written. Unlike abort(), an error here lets the next request use the socket.
      throw new GatewayError('cancelled', { upstream: this.#handler.options.upstream, executed: 'no' });
    }
    this.#controller = controller;
    this.#stage = 'sent';
  }

  onResponseStart(_controller: WireController, status: number, headers: ResponseHeaders): void {
    if (this.#stage !== 'sent') return;
    this.#handler.onHeaders?.(headers);
    if (status >= 300) {
      this.#refuse(status, headers);
      return;
    }
    const type = mediaType(headers);
    this.#handler.onAccepted?.(this, headers);
    if (this.#isDone()) return;
    // Nothing is needed of the response to a notification or an answer.
    if (this.id === undefined) this.#linger();
    if (type === 'text/event-stream') {
      this.#readEvents();
    } else if (!this.#wantsAnswer || (status === ACCEPTED && this.#handler.mayAnswerElsewhere?.() === true)) {
      this.#stage = 'ignored';
      this.#isAnsweredElsewhere = this.#wantsAnswer;
      this.#isUnexpectedBody = type === 'application/json';
      return;
    } else if (type === 'application/json') {
      this.#readJson(headers);
    } else {
      this.fail(this.#protocolError(unexpectedBody(status, type), new NotMcpError()));
    }
    const compression = compressionOf(headers);
    if (compression !== undefined && this.#body?.isReadable !== true) {
      this.fail(this.#protocolError(`compressed its answer unasked (${compression})`));
    }
  }

  onResponseData(_controller: WireController, chunk: Buffer): void {
    switch (this.#stage) {
      case 'events':
        this.#reader?.feed(chunk);
        this.#count(this.#reader?.pendingBytes ?? 0);
        return;
      case 'json':
      case 'refusal':
        this.#add(chunk);
        return;
      case 'ignored':
        if (this.#isUnexpectedBody) this.#isReuseBlocked = true;
        return;
      case 'queued':
      case 'sent':
      case 'done':
    }
  }

  onResponseEnd(): void {
    if (this.#body?.isCompressed === true && !this.#isDone()) this.#decompress(this.#body);
    else this.#onBodyEnd();
  }

  #onBodyEnd(): void {
    this.#hasEnded = true;
    switch (this.#stage) {
      case 'json':
        this.#readAnswer();
        if (this.#isDone()) return;
        if (this.#isAnswered) this.#complete();
        else
          this.fail(this.#protocolError('answered with something that is no answer to the request', new NotMcpError()));
        return;
      case 'events':
        this.#onEventStreamEnd(undefined);
        return;
      case 'refusal': {
        const refused = this.#refused;
        const body = this.#body?.text();
        const controller = this.#controller;
        this.#controller = undefined;
        this.#end(() => {
          const read = this.#isTextRefusal ? { text: body } : { body };
          const isAnswer = refused !== undefined && this.#handler.onRefused(this, { ...refused, ...read });
          if (!isAnswer) controller?.abort(this.#cancelledError());
        });
        return;
      }
      case 'ignored':
        if (this.awaitsOtherStream) this.#release();
        else this.#complete();
        return;
      case 'queued':
      case 'sent':
      case 'done':
    }
  }

  onResponseError(_controller: WireController, thrown: Error): void {
    if (this.#isDone()) return;
    const refused = this.#refused;
    if (this.awaitsOtherStream) this.#release();
    else if (this.#stage === 'events') this.#onEventStreamEnd(thrown);
    else if (this.#stage === 'ignored') this.#end(() => this.#handler.onDone(this));
    else if (refused !== undefined) this.#end(() => this.#handler.onRefused(this, refused));
    else this.fail(wireFailure(this.#handler.options.upstream, thrown, this.#stage !== 'queued'));
  }

  /** Counts the unfinished message. Reading stops while there is no room for it. */
  #count(bytes: number): void {
    if (this.#isDone() || (bytes <= UNCOUNTED_BYTES && this.#received === undefined)) return;
    const { receiving, upstream } = this.#handler.options;
    this.#received ??= receiving.join(upstream, {
      hold: () => {
        this.#controller?.hold();
        this.#pieces?.pause();
      },
      resume: () => {
        this.#controller?.resume();
        this.#pieces?.resume();
      },
    });
    this.#received.update(bytes);
  }

  /** Adds a piece of the body, which is counted with the compressed one that it comes from. */
  #add(chunk: Buffer, compressedBytes = 0): void {
    if (this.#isDone() || this.#body === undefined) return;
    if (this.#body.bytes + chunk.length > this.#handler.options.messageBytes) this.#endUnread();
    else this.#body.add(chunk);
    this.#count(compressedBytes + this.#body.bytes);
  }

  /** Reads on with the decompressed body. That of a large one follows in pieces, after the end of the response. */
  #decompress(compressed: ResponseBody): void {
    this.#body = new ResponseBody(undefined);
    try {
      const whole = compressed.decompressed(UNCOUNTED_BYTES);
      if (whole !== undefined) {
        this.#add(whole);
        this.#onBodyEnd();
        return;
      }
    } catch {
      this.#endUndecompressed();
      return;
    }
    // The socket could be reused before the answer is read, which may answer another request.
    this.#controller?.abort(this.#cancelledError());
    this.#controller = undefined;
    // Reading may be held by what the compressed body has counted.
    this.#received?.update(0);
    this.#pieces = compressed
      .decompressedPieces()
      .on('data', (piece: Buffer) => this.#add(piece, compressed.bytes))
      .on('end', () => this.#onBodyEnd())
      .on('error', () => this.#endUndecompressed());
  }

  #refuse(status: number, headers: ResponseHeaders): void {
    const refused = {
      status,
      body: undefined,
      retryAfterMs: retryAfterMs(headers, Date.now()),
      missingScopes: status === 403 ? missingScopes(headers) : undefined,
      hasChallenge: headers['www-authenticate'] !== undefined,
      location: redirectLocation(status, headers),
    };
    const type = mediaType(headers);
    const isJson = type === 'application/json';
    const isPlain = type === '' || type === 'text/plain';
    // The body of a 401 or 403 is about our credentials, so it is not forwarded.
    const isAnswer = isJson && status >= 400 && status !== 401 && status !== 403;
    this.#isTextRefusal = !isAnswer && (isJson || isPlain) && SESSION_REFUSALS.has(status);
    const body = new ResponseBody(headers['content-length'], compressionOf(headers));
    if ((isAnswer || this.#isTextRefusal) && body.isReadable) {
      this.#refused = refused;
      this.#body = body;
      this.#stage = 'refusal';
    } else {
      this.#end(() => this.#handler.onRefused(this, refused));
    }
  }

  #readJson(headers: ResponseHeaders): void {
    this.#stage = 'json';
    this.#body = new ResponseBody(headers['content-length'], compressionOf(headers));
  }

  #readAnswer(): void {
    const text = this.#body?.text() ?? '';
    this.#stage = 'ignored';
    this.#handler.onText(this, text);
  }

  #readEvents(): void {
    const position = { lastEventId: '', retryMs: undefined };
    this.#position = position;
    this.#stage = 'events';
    const { messageBytes, onLimit } = this.#handler.options;
    const ignored = new IgnoredRate((forMs) => this.pause(forMs), onLimit);
    const onEvent = (type: string, data: string) => {
      if (type !== 'message' || data === '') ignored.count();
      else if (this.#stage === 'events') this.#handler.onText(this, data);
    };
    this.#reader = new EventReader(position, messageBytes, onEvent, onLimit, () => ignored.count());
  }

  #onEventStreamEnd(thrown: Error | undefined): void {
    const { upstream } = this.#handler.options;
    const position = this.#position;
    if (this.#isAnswered || !this.#wantsAnswer) {
      this.#complete();
      return;
    }
    const failure =
      thrown === undefined
        ? upstreamError('upstream-lost', upstream, 'ended the stream unanswered')
        : wireFailure(upstream, thrown, true);
    const hasEventId = position !== undefined && position.lastEventId !== '';
    if (failure.code === 'upstream-lost' && hasEventId && this.#handler.onInterrupted !== undefined) {
      this.#end(() => this.#handler.onInterrupted?.(this, position));
    } else {
      this.fail(failure);
    }
  }

  /** Ends the POST, whose body is too large. A refusal counts as one without a body then, also if it cannot be read. */
  #endUnread(): void {
    const refused = this.#refused;
    if (refused !== undefined) {
      this.#end(() => this.#handler.onRefused(this, refused));
      return;
    }
    const { upstream, messageBytes } = this.#handler.options;
    this.fail(oversizedAnswer(upstream, messageBytes));
  }

  #endUndecompressed(): void {
    if (this.#refused !== undefined) this.#endUnread();
    else this.fail(this.#protocolError('compressed its answer unasked, and it cannot be read'));
  }

  #protocolError(problem: string, cause?: NotMcpError): GatewayError {
    return upstreamError('upstream-protocol', this.#handler.options.upstream, problem, {}, cause);
  }

  /** Gives the socket away, while the request is still in flight. */
  #release(): void {
    const controller = this.#controller;
    this.#controller = undefined;
    if (this.#isReuseBlocked) controller?.abort(this.#cancelledError());
    this.#hasEnded = true;
  }

  #isDone(): boolean {
    return this.#stage === 'done';
  }

  /** Ends the POST successfully. Its socket can be reused if the response is complete and contained nothing unexpected. */
  #complete(): void {
    if (this.#hasEnded && !this.#isReuseBlocked) this.#controller = undefined;
    this.#end(() => this.#handler.onDone(this));
  }

  #end(report: () => void): void {
    if (this.#isDone()) return;
    this.#stage = 'done';
    clearTimeout(this.#lingerTimer);
    this.#controller?.abort(this.#cancelledError());
    this.#pieces?.destroy();
    report();
    // After the report: the message is kept until it was passed on.
    this.#received?.update(0);
  }

  #cancelledError(): GatewayError {
    return new GatewayError('cancelled', { upstream: this.#handler.options.upstream });
  }
}

function unexpectedBody(status: number, type: string): string {
  return type === ''
    ? `answered HTTP ${status} without an answer`
    : `answered ${type.slice(0, 80)} where JSON or an event stream was expected`;
}

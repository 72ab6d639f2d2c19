import { GatewayError } from '../../errors.ts';
import { EventReader, type StreamPosition } from '../../protocol/event-stream.ts';
import { ResponseBody } from './response-body.ts';
import { type Refused, wireFailure } from './http-failure.ts';
import { isEncoded, mediaType, retryAfterMs } from './http-headers.ts';
import type { ResponseHeaders, WireController, WireHandler } from '../../http1/wire.ts';

/** Sends POSTs and receives their outcomes. `done`, `refused`, `broken` or `failed` comes once and last, unless the POST was cancelled. */
export interface PostExchangeOwner {
  readonly upstream: string;
  readonly messageBytes: number;
  /** The status is 2xx; what follows is the body. */
  onAccepted(post: PostExchange, headers: ResponseHeaders): void;
  /** A message, or a batch of them, as text. `answered()` tells the post that its answer was among them. */
  onText(post: PostExchange, text: string): void;
  /** Over, and nothing is missing. */
  onDone(post: PostExchange): void;
  /** The status is no success. Returns whether the body was the upstream's JSON-RPC answer to this request all the same. */
  onRefused(post: PostExchange, refused: Refused): boolean;
  /** Its event stream ended before the answer, and can be taken up from `position`. */
  onBroken(post: PostExchange, position: StreamPosition): void;
  onFailed(post: PostExchange, error: GatewayError): void;
}

/** An event stream may go on after the answer; this long we wait for its end, so that the socket can be used again. */
const LINGER_MS = 1_000;

type Stage = 'queued' | 'sent' | 'json' | 'events' | 'refusal' | 'ignored' | 'over';

/** One message on its way to the upstream by POST, and the response to it. Never sent again. */
export class PostExchange implements WireHandler {
  readonly id: number | undefined;
  readonly method: string | undefined;
  readonly #owner: PostExchangeOwner;
  readonly #wantsAnswer: boolean;
  #controller: WireController | undefined;
  #stage: Stage = 'queued';
  #isAnswered = false;
  #hasEnded = false;
  /** Whether the response held something that is no answer to this request. */
  #isDoubtful = false;
  /** Whether a body would be an answer, and is not wanted. */
  #isUnwanted = false;
  #body: ResponseBody | undefined;
  #reader: EventReader | undefined;
  #position: StreamPosition | undefined;
  #refused: Refused | undefined;
  #linger: NodeJS.Timeout | undefined;

  /** @param wantsAnswer whether the response to the POST has to hold the answer. */
  constructor(owner: PostExchangeOwner, id: number | undefined, method: string | undefined, wantsAnswer: boolean) {
    this.#owner = owner;
    this.id = id;
    this.method = method;
    this.#wantsAnswer = wantsAnswer;
  }

  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Whether all of the response has come, whatever is made of it. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Whether what came is known to be ASCII. */
  get isAscii(): boolean {
    return this.#body?.isAscii === true;
  }

  /**
   * Keeps other requests from the socket of this one. Called when its response holds a message that answers another request,
   * or names none: the bytes that follow may be the answer to this one, and would be read as the answer to the next.
   */
  doubt(): void {
    this.#isDoubtful = true;
  }

  /** Its answer has come, here or elsewhere: the rest may still be said, but is not waited for. */
  markAnswered(): void {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    if (this.#stage === 'ignored' || this.#isOver()) return;
    this.#linger = setTimeout(() => this.#end(() => this.#owner.onDone(this)), LINGER_MS);
    this.#linger.unref();
  }

  /** Ends it here and now; nothing more is told. */
  cancel(): void {
    this.#end(() => undefined);
  }

  /** Reads nothing of its event stream for this long. Returns false where that changes nothing. */
  pause(forMs: number): boolean {
    return this.#stage === 'events' && this.#controller?.pause(forMs) === true;
  }

  fail(error: GatewayError): void {
    this.#end(() => this.#owner.onFailed(this, error));
  }

  onRequestStart(controller: WireController): void {
    if (this.#isOver()) {
      // Cancelled before a byte was written. Unlike abort(), this leaves the socket to the next request.
      throw new GatewayError('cancelled', { upstream: this.#owner.upstream, executed: 'no' });
    }
    this.#controller = controller;
    this.#stage = 'sent';
  }

  onResponseStart(_controller: WireController, status: number, headers: ResponseHeaders): void {
    if (this.#stage !== 'sent' || status < 200) return;
    if (status >= 300) {
      this.#refuse(status, headers);
      return;
    }
    const type = mediaType(headers);
    this.#owner.onAccepted(this, headers);
    if (this.#isOver()) return;
    if (type === 'text/event-stream') {
      this.#readEvents();
    } else if (!this.#wantsAnswer) {
      this.#stage = 'ignored';
      this.#isUnwanted = type === 'application/json';
      return;
    } else if (type === 'application/json') {
      this.#readJson(headers);
    } else {
      this.fail(this.#onBroken(unreadable(status, type)));
    }
    if (isEncoded(headers)) this.fail(this.#onBroken('compressed its answer unasked'));
  }

  onResponseData(_controller: WireController, chunk: Buffer): void {
    switch (this.#stage) {
      case 'events':
        this.#reader?.feed(chunk);
        return;
      case 'json':
      case 'refusal':
        if (this.#body === undefined) return;
        if (this.#body.bytes + chunk.length > this.#owner.messageBytes) this.#overflow();
        else this.#body.add(chunk);
        return;
      case 'ignored':
        if (this.#isUnwanted) this.#isDoubtful = true;
        return;
      case 'queued':
      case 'sent':
      case 'over':
    }
  }

  onResponseEnd(): void {
    this.#hasEnded = true;
    switch (this.#stage) {
      case 'json':
        this.#stage = 'ignored';
        this.#owner.onText(this, this.#body?.text() ?? '');
        if (this.#isOver()) return;
        if (this.#isAnswered) this.#complete();
        else this.fail(this.#onBroken('answered with something that is no answer to the request'));
        return;
      case 'events':
        this.#onStreamEnd(undefined);
        return;
      case 'refusal': {
        const refused = this.#refused;
        const body = this.#body?.text();
        const controller = this.#controller;
        this.#controller = undefined;
        this.#end(() => {
          const isAnswer = refused !== undefined && this.#owner.onRefused(this, { ...refused, body });
          if (!isAnswer) controller?.abort(this.#cancelled());
        });
        return;
      }
      case 'ignored':
        this.#complete();
        return;
      case 'queued':
      case 'sent':
      case 'over':
    }
  }

  onResponseError(_controller: WireController, thrown: Error): void {
    if (this.#isOver()) return;
    const refused = this.#refused;
    if (this.#stage === 'events') this.#onStreamEnd(thrown);
    else if (this.#stage === 'ignored') this.#end(() => this.#owner.onDone(this));
    else if (refused !== undefined) this.#end(() => this.#owner.onRefused(this, refused));
    else this.fail(wireFailure(this.#owner.upstream, thrown, this.#stage !== 'queued'));
  }

  #refuse(status: number, headers: ResponseHeaders): void {
    const refused = { status, body: undefined, retryAfterMs: retryAfterMs(headers, Date.now()) };
    // What comes with a 401 or 403 is about credentials and goes no further.
    const isReadable = status >= 400 && status !== 401 && status !== 403 && mediaType(headers) === 'application/json';
    if (isReadable && !isEncoded(headers)) {
      this.#refused = refused;
      this.#body = new ResponseBody(headers['content-length']);
      this.#stage = 'refusal';
    } else {
      this.#end(() => this.#owner.onRefused(this, refused));
    }
  }

  #readJson(headers: ResponseHeaders): void {
    this.#stage = 'json';
    this.#body = new ResponseBody(headers['content-length']);
  }

  #readEvents(): void {
    const position = { lastEventId: '', retryMs: undefined };
    this.#position = position;
    this.#stage = 'events';
    this.#reader = new EventReader(position, this.#owner.messageBytes, (type, data) => {
      if (type === 'message' && data !== '' && this.#stage === 'events') this.#owner.onText(this, data);
    });
  }

  #onStreamEnd(thrown: Error | undefined): void {
    const { upstream } = this.#owner;
    const position = this.#position;
    if (this.#isAnswered || !this.#wantsAnswer) {
      this.#complete();
      return;
    }
    const failure =
      thrown === undefined
        ? new GatewayError('upstream-lost', { upstream, message: `upstream "${upstream}" ended the stream unanswered` })
        : wireFailure(upstream, thrown, true);
    if (failure.code === 'upstream-lost' && position !== undefined && position.lastEventId !== '') {
      this.#end(() => this.#owner.onBroken(this, position));
    } else {
      this.fail(failure);
    }
  }

  #overflow(): void {
    const refused = this.#refused;
    if (refused !== undefined) {
      this.#end(() => this.#owner.onRefused(this, refused));
      return;
    }
    const { upstream, messageBytes } = this.#owner;
    const message = `upstream "${upstream}" answered with more than ${messageBytes} bytes`;
    this.fail(new GatewayError('too-large', { upstream, message }));
  }

  #onBroken(what: string): GatewayError {
    const { upstream } = this.#owner;
    return new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" ${what}` });
  }

  #isOver(): boolean {
    return this.#stage === 'over';
  }

  /** Ends it well, and leaves its socket to other requests, if nothing on it is in doubt. */
  #complete(): void {
    if (this.#hasEnded && !this.#isDoubtful) this.#controller = undefined;
    this.#end(() => this.#owner.onDone(this));
  }

  #end(tell: () => void): void {
    if (this.#isOver()) return;
    this.#stage = 'over';
    clearTimeout(this.#linger);
    this.#controller?.abort(this.#cancelled());
    tell();
  }

  #cancelled(): GatewayError {
    return new GatewayError('cancelled', { upstream: this.#owner.upstream });
  }
}

function unreadable(status: number, type: string): string {
  return type === ''
    ? `answered HTTP ${status} without an answer`
    : `answered ${type.slice(0, 80)} where JSON or an event stream was expected`;
}

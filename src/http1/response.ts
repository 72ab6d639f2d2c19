import { type LimitName, LIMITS } from '../limits.ts';
import { WireError } from './error.ts';
import { ChunkReader } from './chunks.ts';
import { readHead, type ResponseHead } from './head.ts';

/** Receives the parts of a response. May stop the reader in each method; `onEnd` may also start it again. */
export interface ResponseSink {
  /** Receives the head. Not called for interim (1xx) responses. */
  onHead(head: ResponseHead): void;
  /** Receives a piece of the body. The bytes are valid only until this returns. */
  onBody(bytes: Buffer, from: number, to: number): void;
  /** Called at the end of the response. @param isClean whether no bytes follow it. */
  onEnd(isClean: boolean): void;
}

/** Bytes that are searched for the end of a head in one step. Most heads have fewer, and a large response has more. */
const HEAD_STEP_BYTES = 2_048;
/** A head up to this size is kept with its text, because the next head is often equal. */
const MAX_KEPT_HEAD_BYTES = 1_024;

/** A line break or NUL that HTTP does not allow in a head. Such a head is refused before its end arrives. */
const STRAY = /(?<!\r)\n|\r(?!\n|$)|\0/g;
const PROTOCOL = 'HTTP/1.';

type ResponseStage = 'idle' | 'head' | 'fixed' | 'chunked' | 'close';

/** Reads the responses on one connection, one at a time, from chunks of bytes with any boundaries. */
export class ResponseReader {
  readonly #sink: ResponseSink;
  #stage: ResponseStage = 'idle';
  /** The received part of an incomplete head. */
  #headStart = '';
  #bytesLeft = 0;
  #chunks: ChunkReader | undefined;
  /** Interim heads (1xx) before the head of this response. */
  #interim = 0;
  #keptText = '';
  #keptHead: ResponseHead | undefined;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
  }

  start(): void {
    this.#stage = 'head';
    this.#headStart = '';
    this.#interim = 0;
  }

  /** Stops reading: the sink receives nothing more of this response. */
  stop(): void {
    this.#stage = 'idle';
  }

  /**
   * Reads received bytes and passes the parts of the response to the sink.
   *
   * @param length number of bytes to read from the start of `bytes`.
   * @throws {WireError} `not-http`; also any error of the sink.
   */
  feed(bytes: Buffer, length: number): void {
    let at = 0;
    while (at < length) {
      switch (this.#stage) {
        case 'head':
          at = this.#readHead(bytes, at, length);
          break;
        case 'fixed':
          this.#readFixed(bytes, at, length);
          return;
        case 'chunked':
          at = this.#readChunk(bytes, at, length);
          break;
        case 'close':
          this.#sink.onBody(bytes, at, length);
          return;
        case 'idle':
          return;
      }
    }
  }

  /** Handles the end of the connection. If that ends the response, calls `onEnd` of the sink and returns true. */
  onConnectionEnd(): boolean {
    if (this.#stage !== 'close') return false;
    this.#end(true);
    return true;
  }

  #end(isClean: boolean): void {
    this.#stage = 'idle';
    this.#sink.onEnd(isClean);
  }

  /** Reads a head. Returns the offset where it stopped: `length` after the end of the response, even if bytes follow. */
  #readHead(bytes: Buffer, at: number, length: number): number {
    const before = this.#headStart.length;
    const stop = Math.min(length, at + HEAD_STEP_BYTES);
    const text = this.#headStart + bytes.toString('latin1', at, stop);
    const blank = text.indexOf('\r\n\r\n', Math.max(0, before - 3));
    if (blank < 0) {
      const isHttp = text.startsWith(PROTOCOL) || PROTOCOL.startsWith(text);
      STRAY.lastIndex = Math.max(0, before - 1);
      if (!isHttp || STRAY.test(text)) throw broken('something that is no HTTP/1.1 response');
    }
    if ((blank < 0 ? text.length : blank + 4) > LIMITS.responseHeadBytes) {
      throw broken(`a response head of more than ${LIMITS.responseHeadBytes} bytes`, 'responseHeadBytes');
    }
    if (blank < 0) {
      this.#headStart = text;
      return stop;
    }
    this.#headStart = '';
    const end = at + blank + 4 - before;
    const head = this.#parse(text.slice(0, blank + 4));
    if (head.status < 200) {
      if (++this.#interim > LIMITS.interimResponses) throw tooManyInterim();
      return end;
    }
    return this.#startBody(head, end === length) ? end : length;
  }

  #parse(text: string): ResponseHead {
    if (this.#keptHead !== undefined && text === this.#keptText) return this.#keptHead;
    const head = readHead(text);
    if (text.length <= MAX_KEPT_HEAD_BYTES) {
      this.#keptText = text;
      this.#keptHead = head;
    }
    return head;
  }

  /** Passes the head to the sink. Returns whether a body follows. */
  #startBody(head: ResponseHead, isClean: boolean): boolean {
    const { framing } = head;
    this.#bytesLeft = typeof framing === 'number' ? framing : 0;
    this.#chunks = framing === 'chunked' ? new ChunkReader() : undefined;
    this.#stage = typeof framing === 'number' ? 'fixed' : framing;
    this.#sink.onHead(head);
    if (this.#isStopped()) return false;
    if (framing === 0) this.#end(isClean);
    return framing !== 0;
  }

  #readFixed(bytes: Buffer, at: number, length: number): void {
    const end = Math.min(length, at + this.#bytesLeft);
    this.#bytesLeft -= end - at;
    this.#sink.onBody(bytes, at, end);
    if (this.#bytesLeft === 0 && !this.#isStopped()) this.#end(end === length);
  }

  /** Reads framing and at most one piece of a chunk. Returns the offset where it stopped, like `#readHead`. */
  #readChunk(bytes: Buffer, from: number, length: number): number {
    const chunks = this.#chunks;
    if (chunks === undefined) return length;
    const at = chunks.feed(bytes, from, length);
    if (chunks.isComplete) {
      this.#end(at === length);
      return length;
    }
    const end = Math.min(length, at + chunks.bytesLeft);
    if (end === at) return at;
    chunks.consume(end - at);
    this.#sink.onBody(bytes, at, end);
    return this.#isStopped() ? length : end;
  }

  /** Returns whether the sink has stopped the reader; to be checked after each call of the sink. */
  #isStopped(): boolean {
    return this.#stage === 'idle';
  }
}

export function tooManyInterim(): WireError {
  return broken(`more than ${LIMITS.interimResponses} interim responses before a response`, 'interimResponses');
}

function broken(sent: string, limit?: LimitName): WireError {
  return new WireError('not-http', `the server sent ${sent}`, limit);
}

import { LIMITS } from '../limits.ts';
import { WireError } from './error.ts';
import { ChunkReader } from './chunks.ts';
import { readHead, type ResponseHead } from './head.ts';

/** Told what a response consists of. May stop the reader, and at the end also start it. */
export interface ResponseSink {
  /** Not called for interim responses. */
  head(head: ResponseHead): void;
  /** A piece of the body: those bytes, which stay what they are until it returns. */
  body(bytes: Buffer, from: number, to: number): void;
  /** @param isClean whether nothing came after it. */
  end(isClean: boolean): void;
}

const MAX_HEAD_BYTES = 65_536;
/** What is looked at for the end of a head at once: mostly more than it has, and not the whole of a large answer. */
const HEAD_STEP_BYTES = 2_048;
/** A head up to this is kept: the next one is often the same to the letter. */
const MAX_KEPT_HEAD_BYTES = 1_024;

/** A line break that is none: why wait for the end of the head? */
const STRAY = /(?<!\r)\n|\r(?!\n|$)|\0/g;
const PROTOCOL = 'HTTP/1.';

type State = 'idle' | 'head' | 'fixed' | 'chunked' | 'close';

/** Reads the responses on one connection, one at a time, from bytes cut anywhere. */
export class ResponseReader {
  readonly #sink: ResponseSink;
  #state: State = 'idle';
  /** The beginning of a head whose end has not come. */
  #begun = '';
  /** Bytes of the body that are still to come, where that is known. */
  #left = 0;
  #chunks: ChunkReader | undefined;
  /** Interim heads (1xx) before the head of this response. */
  #interim = 0;
  #keptText = '';
  #keptHead: ResponseHead | undefined;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
  }

  /** A response is expected. */
  start(): void {
    this.#state = 'head';
    this.#begun = '';
    this.#interim = 0;
  }

  /** Nothing more is told of this response. */
  stop(): void {
    this.#state = 'idle';
  }

  /**
   * @param length of what there is to read in `bytes`.
   * @throws {WireError} `not-http`, and whatever the sink throws.
   */
  feed(bytes: Buffer, length: number): void {
    let at = 0;
    while (at < length) {
      switch (this.#state) {
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
          this.#sink.body(bytes, at, length);
          return;
        case 'idle':
          return;
      }
    }
  }

  /** The connection has ended. Whether that is the end of the response; the sink is told then. */
  ended(): boolean {
    if (this.#state !== 'close') return false;
    this.#end(true);
    return true;
  }

  #end(isClean: boolean): void {
    this.#state = 'idle';
    this.#sink.end(isClean);
  }

  /** Each of these returns where it stopped: at `length` when the response is over, whatever comes after it. */
  #readHead(bytes: Buffer, at: number, length: number): number {
    const before = this.#begun.length;
    const stop = Math.min(length, at + HEAD_STEP_BYTES);
    const text = this.#begun + bytes.toString('latin1', at, stop);
    const blank = text.indexOf('\r\n\r\n', Math.max(0, before - 3));
    if (blank < 0) {
      const isHttp = text.startsWith(PROTOCOL) || PROTOCOL.startsWith(text);
      STRAY.lastIndex = Math.max(0, before - 1);
      if (!isHttp || STRAY.test(text)) throw broken('something that is no HTTP/1.1 response');
    }
    if ((blank < 0 ? text.length : blank + 4) > MAX_HEAD_BYTES) {
      throw broken(`a response head of more than ${MAX_HEAD_BYTES} bytes`);
    }
    if (blank < 0) {
      this.#begun = text;
      return stop;
    }
    this.#begun = '';
    const end = at + blank + 4 - before;
    const head = this.#parse(text.slice(0, blank + 4));
    if (head.status < 200) {
      if (++this.#interim > LIMITS.interimResponses) {
        throw broken(`more than ${LIMITS.interimResponses} interim responses before a response`);
      }
      return end;
    }
    return this.#begin(head, end === length) ? end : length;
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

  /** Whether a body is to be read. */
  #begin(head: ResponseHead, isClean: boolean): boolean {
    const { framing } = head;
    this.#left = typeof framing === 'number' ? framing : 0;
    this.#chunks = framing === 'chunked' ? new ChunkReader() : undefined;
    this.#state = typeof framing === 'number' ? 'fixed' : framing;
    this.#sink.head(head);
    if (this.#isOver()) return false;
    if (framing === 0) this.#end(isClean);
    return framing !== 0;
  }

  #readFixed(bytes: Buffer, at: number, length: number): void {
    const end = Math.min(length, at + this.#left);
    this.#left -= end - at;
    this.#sink.body(bytes, at, end);
    if (this.#left === 0 && !this.#isOver()) this.#end(end === length);
  }

  #readChunk(bytes: Buffer, from: number, length: number): number {
    const chunks = this.#chunks;
    if (chunks === undefined) return length;
    const at = chunks.feed(bytes, from, length);
    if (chunks.isOver) {
      this.#end(at === length);
      return length;
    }
    const end = Math.min(length, at + chunks.left);
    if (end === at) return at;
    chunks.took(end - at);
    this.#sink.body(bytes, at, end);
    return this.#isOver() ? length : end;
  }

  /** Asked after each call of the sink, which may have stopped us. */
  #isOver(): boolean {
    return this.#state === 'idle';
  }
}

function broken(what: string): WireError {
  return new WireError('not-http', `the server sent ${what}`);
}

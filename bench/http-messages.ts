const EMPTY = Buffer.alloc(0);
const END_OF_HEAD = Buffer.from('\r\n\r\n');
const CRLF = Buffer.from('\r\n');

const CONTENT_LENGTH = /\r\ncontent-length: *(\d+)/i;
const CHUNKED = /\r\ntransfer-encoding: *chunked/i;

/** @param head start line and headers, without the empty line. */
export type OnHttpMessage = (head: string, body: Buffer) => void;

/**
 * Cuts a byte stream into HTTP/1.1 messages, requests or responses, whose body has a length or comes in chunks. A message
 * with neither has no body.
 *
 * The load generator and the fixture use it instead of node:http, so that neither is the bottleneck.
 */
export class HttpMessages {
  readonly #onMessage: OnHttpMessage;
  #state: 'head' | 'fixed' | 'size' | 'chunk' | 'break' | 'trailer' = 'head';
  #rest: Buffer = EMPTY;
  #head = '';
  #parts: Buffer[] = [];
  #missing = 0;

  constructor(onMessage: OnHttpMessage) {
    this.#onMessage = onMessage;
  }

  /** @throws {Error} if a chunk has no size. */
  push(data: Buffer): void {
    const bytes = this.#rest.length === 0 ? data : Buffer.concat([this.#rest, data]);
    this.#rest = EMPTY;
    let at = 0;
    while (at < bytes.length) {
      const next = this.#step(bytes, at);
      if (next === undefined) {
        this.#rest = bytes.subarray(at);
        return;
      }
      at = next;
    }
  }

  /** Returns the position after this step; undefined if more bytes are needed. */
  #step(bytes: Buffer, at: number): number | undefined {
    switch (this.#state) {
      case 'head': {
        const end = bytes.indexOf(END_OF_HEAD, at);
        if (end < 0) return undefined;
        this.#begin(bytes.toString('latin1', at, end));
        return end + 4;
      }
      case 'fixed':
      case 'chunk': {
        const end = Math.min(at + this.#missing, bytes.length);
        this.#parts.push(bytes.subarray(at, end));
        this.#missing -= end - at;
        if (this.#missing > 0) return end;
        if (this.#state === 'fixed') this.#finish();
        else this.#state = 'break';
        return end;
      }
      case 'break':
        if (bytes.length < at + 2) return undefined;
        this.#state = 'size';
        return at + 2;
      case 'size': {
        const end = bytes.indexOf(CRLF, at);
        if (end < 0) return undefined;
        const size = Number.parseInt(bytes.toString('latin1', at, end), 16);
        if (Number.isNaN(size)) throw new Error('a chunk without a size');
        this.#missing = size;
        this.#state = size === 0 ? 'trailer' : 'chunk';
        return end + 2;
      }
      case 'trailer': {
        const end = bytes.indexOf(CRLF, at);
        if (end < 0) return undefined;
        if (end === at) this.#finish();
        return end + 2;
      }
    }
  }

  #begin(head: string): void {
    this.#head = head;
    const length = CONTENT_LENGTH.exec(head)?.[1];
    if (length !== undefined && length !== '0') {
      this.#missing = Number(length);
      this.#state = 'fixed';
    } else if (length === undefined && CHUNKED.test(head)) {
      this.#state = 'size';
    } else {
      this.#finish();
    }
  }

  #finish(): void {
    const [first = EMPTY, ...more] = this.#parts;
    const body = more.length === 0 ? first : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#state = 'head';
    this.#onMessage(this.#head, body);
  }
}

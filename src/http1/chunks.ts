import { WireError } from './error.ts';

/** Of the line before a chunk: a size, and extensions nobody needs. */
const MAX_LINE_BYTES = 4_096;
/** Of all trailers. */
const MAX_TRAILER_BYTES = 65_536;
const MAX_SIZE_DIGITS = 12;

const [LF, CR, SEMICOLON, TAB, SPACE, DELETE] = [0x0a, 0x0d, 0x3b, 0x09, 0x20, 0x7f];

type State = 'size' | 'extension' | 'size-lf' | 'data' | 'data-cr' | 'data-lf' | 'trailer' | 'trailer-lf' | 'over';

function broken(what: string): WireError {
  return new WireError('not-http', what);
}

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

function isText(code: number): boolean {
  return code === TAB || (code >= SPACE && code !== DELETE);
}

/** Reads what surrounds the chunks of a body: their sizes, and the trailers, which are ignored. */
export class ChunkReader {
  #state: State = 'size';
  #left = 0;
  #lineBytes = 0;
  #digits = 0;
  #isLineEmpty = true;

  /** Bytes of the chunk that are still to come, and come next where it is not 0. */
  get left(): number {
    return this.#state === 'data' ? this.#left : 0;
  }

  /** Whether the body is complete. */
  get isOver(): boolean {
    return this.#state === 'over';
  }

  /** So many bytes of the chunk have come. */
  took(bytes: number): void {
    this.#left -= bytes;
    if (this.#left === 0) this.#state = 'data-cr';
  }

  /**
   * Reads up to the next byte that belongs to a chunk, or to the end of the body.
   *
   * @returns where it stopped.
   * @throws {WireError} `not-http`
   */
  feed(bytes: Buffer, from: number, length: number): number {
    let at = from;
    while (at < length && this.#state !== 'data' && this.#state !== 'over') this.#take(bytes[at++] ?? 0);
    return at;
  }

  #take(code: number): void {
    switch (this.#state) {
      case 'size':
        this.#takeSize(code);
        return;
      case 'extension':
        this.#count(MAX_LINE_BYTES);
        if (code === CR) this.#state = 'size-lf';
        else if (!isText(code)) throw broken('a chunk has a stray control character in its extension');
        return;
      case 'size-lf':
        if (code !== LF) throw broken('the line of a chunk does not end properly');
        this.#lineBytes = 0;
        this.#state = this.#left > 0 ? 'data' : 'trailer';
        return;
      case 'data-cr':
        if (code !== CR) throw broken('a chunk is longer than it said');
        this.#state = 'data-lf';
        return;
      case 'data-lf':
        if (code !== LF) throw broken('a chunk is longer than it said');
        this.#digits = 0;
        this.#state = 'size';
        return;
      case 'trailer':
        this.#count(MAX_TRAILER_BYTES);
        if (code === CR) this.#state = 'trailer-lf';
        else if (isText(code)) this.#isLineEmpty = false;
        else throw broken('a trailer has a stray control character');
        return;
      case 'trailer-lf':
        if (code !== LF) throw broken('a trailer does not end properly');
        this.#state = this.#isLineEmpty ? 'over' : 'trailer';
        this.#isLineEmpty = true;
        return;
      case 'data':
      case 'over':
    }
  }

  #takeSize(code: number): void {
    const digit = hexDigit(code);
    if (digit >= 0) {
      if (++this.#digits > MAX_SIZE_DIGITS) throw broken('a chunk is larger than anything');
      this.#left = this.#left * 16 + digit;
    } else if (this.#digits > 0 && (code === CR || code === SEMICOLON)) {
      this.#state = code === CR ? 'size-lf' : 'extension';
    } else {
      throw broken('a chunk has no proper size');
    }
  }

  #count(limitBytes: number): void {
    if (++this.#lineBytes > limitBytes) throw broken('what surrounds the chunks of a response is too long');
  }
}

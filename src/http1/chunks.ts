import { LIMITS } from '../limits.ts';
import { WireError } from './error.ts';

/** More digits than the size of any chunk has. */
const MAX_SIZE_DIGITS = 12;

const [LF, CR, SEMICOLON, TAB, SPACE, DELETE] = [0x0a, 0x0d, 0x3b, 0x09, 0x20, 0x7f];

type ChunkStage =
  | 'size'
  | 'extension'
  | 'size-lf'
  | 'data'
  | 'data-cr'
  | 'data-lf'
  | 'trailer'
  | 'trailer-lf'
  | 'complete';

function broken(problem: string): WireError {
  return new WireError('not-http', problem);
}

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

function isText(code: number): boolean {
  return code === TAB || (code >= SPACE && code !== DELETE);
}

/**
 * Reads the framing of a chunked body: the sizes of the chunks, and the trailers, which are ignored.
 *
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-7.1
 */
export class ChunkReader {
  #stage: ChunkStage = 'size';
  #bytesLeft = 0;
  #lineBytes = 0;
  #digits = 0;
  #isLineEmpty = true;

  /** The number of the next bytes that belong to the current chunk; 0 if framing comes next. */
  get bytesLeft(): number {
    return this.#stage === 'data' ? this.#bytesLeft : 0;
  }

  get isComplete(): boolean {
    return this.#stage === 'complete';
  }

  /** Counts bytes of the current chunk that the caller has read. */
  consume(bytes: number): void {
    this.#bytesLeft -= bytes;
    if (this.#bytesLeft === 0) this.#stage = 'data-cr';
  }

  /**
   * Reads framing up to the next byte that belongs to a chunk, or to the end of the body.
   *
   * @returns the offset after the last byte that was read.
   * @throws {WireError} `not-http`
   */
  feed(bytes: Buffer, from: number, length: number): number {
    let at = from;
    while (at < length && this.#stage !== 'data' && this.#stage !== 'complete') this.#read(bytes[at++] ?? 0);
    return at;
  }

  #read(code: number): void {
    switch (this.#stage) {
      case 'size':
        this.#readSizeDigit(code);
        return;
      case 'extension':
        this.#countByte('chunkLineBytes');
        if (code === CR) this.#stage = 'size-lf';
        else if (!isText(code)) throw broken('a chunk has a stray control character in its extension');
        return;
      case 'size-lf':
        if (code !== LF) throw broken('the line of a chunk does not end properly');
        this.#lineBytes = 0;
        this.#stage = this.#bytesLeft > 0 ? 'data' : 'trailer';
        return;
      case 'data-cr':
        if (code !== CR) throw broken('a chunk is longer than its size');
        this.#stage = 'data-lf';
        return;
      case 'data-lf':
        if (code !== LF) throw broken('a chunk is longer than its size');
        this.#digits = 0;
        this.#stage = 'size';
        return;
      case 'trailer':
        this.#countByte('trailerBytes');
        if (code === CR) this.#stage = 'trailer-lf';
        else if (isText(code)) this.#isLineEmpty = false;
        else throw broken('a trailer has a stray control character');
        return;
      case 'trailer-lf':
        if (code !== LF) throw broken('a trailer does not end properly');
        this.#stage = this.#isLineEmpty ? 'complete' : 'trailer';
        this.#isLineEmpty = true;
        return;
      case 'data':
      case 'complete':
    }
  }

  #readSizeDigit(code: number): void {
    const digit = hexDigit(code);
    if (digit >= 0) {
      if (++this.#digits > MAX_SIZE_DIGITS) throw broken(`the size of a chunk has more than ${MAX_SIZE_DIGITS} digits`);
      this.#bytesLeft = this.#bytesLeft * 16 + digit;
    } else if (this.#digits > 0 && (code === CR || code === SEMICOLON)) {
      this.#stage = code === CR ? 'size-lf' : 'extension';
    } else {
      throw broken('a chunk has no proper size');
    }
  }

  #countByte(limit: 'chunkLineBytes' | 'trailerBytes'): void {
    if (++this.#lineBytes <= LIMITS[limit]) return;
    throw new WireError('not-http', 'the lines around the chunks of a response are too long', limit);
  }
}

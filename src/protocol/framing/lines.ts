const LF = 0x0a;
const CR = 0x0d;

const MIN_BUFFER_BYTES = 4_096;
/** A larger buffer is released after its line. */
const MAX_REUSED_BYTES = 65_536;

/** The longest beginning of a line that exceeds the limit. */
const MAX_CUT_BYTES = 65_536;

const EMPTY = Buffer.alloc(0);

/**
 * Receives one line.
 *
 * @param line the text without its line break. Bytes that are not UTF-8 become U+FFFD.
 * @param isCut whether the line exceeds the limit. Then `line` is its beginning, and the rest is discarded.
 */
type OnLine = (line: string, isCut: boolean) => void;

/** Receives what follows the beginning of a line that exceeds the limit. @param isEnd whether the line ends with these bytes, of which there may be none. */
type OnRest = (bytes: Buffer, isEnd: boolean) => void;

/**
 * Splits a byte stream into lines that end in LF or CRLF. Empty lines are only counted.
 *
 * Buffers at most one line of `limitBytes`, line break not counted. A longer line is reported once, as soon as its
 * length is known, and skipped to its end.
 */
export class LineSplitter {
  /** The longest line. Another value holds for an unfinished line too. */
  limitBytes: number;
  readonly #onLine: OnLine;
  readonly #onEmpty: (() => void) | undefined;
  readonly #onRest: OnRest | undefined;
  #partial: Buffer = EMPTY;
  #partialBytes = 0;
  #isSkipping = false;

  /** @param onEmpty called for each empty line. */
  constructor(limitBytes: number, onLine: OnLine, onEmpty?: () => void, onRest?: OnRest) {
    this.limitBytes = limitBytes;
    this.#onLine = onLine;
    this.#onEmpty = onEmpty;
    this.#onRest = onRest;
  }

  /** Bytes of the unfinished line. */
  get pendingBytes(): number {
    return this.#partialBytes;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end < 0) break;
      if (this.#isSkipping) {
        this.#skip(chunk.subarray(start, end), true);
      } else if (this.#partialBytes === 0) {
        this.#emit(chunk, start, end);
      } else {
        this.#append(chunk, start, end);
        if (this.#isSkipping) this.#skip(EMPTY, true);
        else this.#emitPartial();
      }
      start = end + 1;
    }
    if (start === chunk.length) return;
    if (this.#isSkipping) this.#skip(chunk.subarray(start), false);
    else this.#append(chunk, start, chunk.length);
  }

  /** Ends the stream and reports its last line, which has no line break. */
  end(): void {
    if (this.#isSkipping) this.#skip(EMPTY, true);
    else if (this.#partialBytes > 0) this.#emitPartial();
  }

  #emit(bytes: Buffer, start: number, end: number): void {
    const stop = end > start && bytes[end - 1] === CR ? end - 1 : end;
    if (stop === start) return this.#onEmpty?.();
    if (stop - start > this.limitBytes) this.#cut(bytes.subarray(start, stop), true);
    else this.#onLine(bytes.toString('utf8', start, stop), false);
  }

  #cut(line: Buffer, isEnd: boolean): void {
    const bytes = Math.min(this.limitBytes, MAX_CUT_BYTES);
    this.#onLine(line.toString('utf8', 0, bytes), true);
    this.#skip(line.subarray(bytes), isEnd);
  }

  #skip(bytes: Buffer, isEnd: boolean): void {
    this.#isSkipping = !isEnd;
    this.#onRest?.(bytes, isEnd);
  }

  #emitPartial(): void {
    const partial = this.#partial;
    const bytes = this.#partialBytes;
    if (partial.length > MAX_REUSED_BYTES) this.#partial = EMPTY;
    this.#partialBytes = 0;
    this.#emit(partial, 0, bytes);
  }

  /**
   * Appends bytes to the unfinished line. Uses one buffer that doubles, not a list of chunks, because a peer may send a
   * long line byte by byte.
   */
  #append(chunk: Buffer, start: number, end: number): void {
    // One byte more than the limit: it may be the CR of the line break.
    const room = Math.max(0, this.limitBytes + 1 - this.#partialBytes);
    const taken = Math.min(end - start, room);
    const needed = this.#partialBytes + taken;
    if (needed > this.#partial.length) {
      const capacity = Math.max(needed, Math.min(this.#partial.length * 2, this.limitBytes + 1), MIN_BUFFER_BYTES);
      const grown = Buffer.allocUnsafeSlow(capacity);
      this.#partial.copy(grown, 0, 0, this.#partialBytes);
      this.#partial = grown;
    }
    chunk.copy(this.#partial, this.#partialBytes, start, start + taken);
    this.#partialBytes = needed;

    const isOver = end - start > room || (needed > this.limitBytes && this.#partial[needed - 1] !== CR);
    if (!isOver) return;
    // #emit would take a CR at the end for part of a line break, but more of this line follows.
    const line = this.#partial.subarray(0, needed);
    this.#partial = EMPTY;
    this.#partialBytes = 0;
    this.#cut(line, false);
    this.#skip(chunk.subarray(start + taken, end), false);
  }
}

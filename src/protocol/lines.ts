const LF = 0x0a;
const CR = 0x0d;

const MIN_HELD_BYTES = 4_096;
/** A buffer that grew beyond this is let go after its line. */
const MAX_KEPT_BYTES = 65_536;

const NOTHING = Buffer.alloc(0);

/**
 * @param line without its line break; what is not UTF-8 became U+FFFD.
 * @param isCut the line is longer than the limit: these are its first bytes, and the rest of it is not kept.
 */
type OnLine = (line: string, isCut: boolean) => void;

/**
 * Cuts a byte stream into lines that end in LF or CRLF; empty lines are ignored.
 *
 * Holds at most one line of `limitBytes`, line break not counted. A longer one is reported once, as soon as it is known to
 * be longer, and skipped to its end.
 */
export class LineSplitter {
  readonly #limitBytes: number;
  readonly #onLine: OnLine;
  #held: Buffer = NOTHING;
  #heldBytes = 0;
  #isSkipping = false;

  constructor(limitBytes: number, onLine: OnLine) {
    this.#limitBytes = limitBytes;
    this.#onLine = onLine;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end < 0) break;
      if (this.#isSkipping) {
        this.#isSkipping = false;
      } else if (this.#heldBytes === 0) {
        this.#emit(chunk, start, end);
      } else {
        this.#hold(chunk, start, end);
        this.#emitHeld();
        this.#isSkipping = false;
      }
      start = end + 1;
    }
    if (start < chunk.length && !this.#isSkipping) this.#hold(chunk, start, chunk.length);
  }

  /** The stream is over: what it left without a line break is a line too. */
  end(): void {
    this.#emitHeld();
  }

  #emit(bytes: Buffer, start: number, end: number): void {
    const stop = end > start && bytes[end - 1] === CR ? end - 1 : end;
    if (stop === start) return;
    const isCut = stop - start > this.#limitBytes;
    this.#onLine(bytes.toString('utf8', start, isCut ? start + this.#limitBytes : stop), isCut);
  }

  #emitHeld(): void {
    const held = this.#held;
    const bytes = this.#heldBytes;
    if (held.length > MAX_KEPT_BYTES) this.#held = NOTHING;
    this.#heldBytes = 0;
    this.#emit(held, 0, bytes);
  }

  /** One buffer that doubles, not a list of chunks: a peer may send a long line byte by byte. */
  #hold(chunk: Buffer, start: number, end: number): void {
    // One byte more than the limit, for it may be the CR of the line break.
    const room = this.#limitBytes + 1 - this.#heldBytes;
    const taken = Math.min(end - start, room);
    const needed = this.#heldBytes + taken;
    if (needed > this.#held.length) {
      const capacity = Math.max(needed, Math.min(this.#held.length * 2, this.#limitBytes + 1), MIN_HELD_BYTES);
      const grown = Buffer.allocUnsafeSlow(capacity);
      this.#held.copy(grown, 0, 0, this.#heldBytes);
      this.#held = grown;
    }
    chunk.copy(this.#held, this.#heldBytes, start, start + taken);
    this.#heldBytes = needed;

    const isOver = end - start > room || (needed > this.#limitBytes && this.#held[needed - 1] !== CR);
    if (!isOver) return;
    // Not by way of #emit: a CR in the last place is no line break when more follows it.
    const head = this.#held.toString('utf8', 0, this.#limitBytes);
    this.#held = NOTHING;
    this.#heldBytes = 0;
    this.#isSkipping = true;
    this.#onLine(head, true);
  }
}

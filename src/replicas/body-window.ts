import type { Channel } from './channel.ts';
import { dataFrame, FRAME, numberFrame } from './frames.ts';

/** Bytes of a body that the other side may send before they are read. */
const WINDOW_BYTES = 131_072;
/** The largest piece of a body in one frame. */
const PIECE_BYTES = 32_768;
/** The reader reports bytes that it has read in steps of this size. */
const REPORT_BYTES = 32_768;

const EMPTY = Buffer.alloc(0);

/** Sends one body in pieces, no faster than the other side reads it. */
export class BodySender {
  readonly #channel: Channel;
  readonly #exchange: number;
  readonly #onDrained: () => void;
  readonly #onEnded: (() => void) | undefined;
  readonly #retry = (): void => {
    if (this.#flush()) this.#onDrained();
  };
  #windowBytes = WINDOW_BYTES;
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  #isEnding = false;
  #isClosed = false;

  /** @param onDrained called when a body that had to wait has been sent. @param onEnded called when the whole body has been sent. */
  constructor(channel: Channel, exchange: number, onDrained: () => void, onEnded?: () => void) {
    this.#channel = channel;
    this.#exchange = exchange;
    this.#onDrained = onDrained;
    this.#onEnded = onEnded;
  }

  /** Bytes that wait for the other side. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Takes bytes out of the window that another frame carries. Returns whether it has that many. */
  reserve(bytes: number): boolean {
    if (this.#isClosed || this.#queuedBytes > 0 || bytes > Math.min(PIECE_BYTES, this.#windowBytes)) return false;
    this.#windowBytes -= bytes;
    return true;
  }

  /** Sends bytes. Returns false if they wait for the other side. */
  write(bytes: Buffer): boolean {
    if (this.#isClosed || this.#isEnding) return true;
    this.#add(bytes);
    return this.#queuedBytes === 0;
  }

  /** Ends the body after these bytes. */
  end(bytes: Buffer = EMPTY): void {
    if (this.#isClosed || this.#isEnding) return;
    this.#isEnding = true;
    this.#add(bytes);
  }

  #add(bytes: Buffer): void {
    if (bytes.length > 0) {
      this.#queue.push(bytes);
      this.#queuedBytes += bytes.length;
    }
    this.#flush();
  }

  /** Allows further bytes. */
  grant(bytes: number): void {
    this.#windowBytes += bytes;
    this.#retry();
  }

  /** Sends nothing more. */
  close(): void {
    this.#isClosed = true;
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  /** Sends as much as the other side allows. Returns true if bytes have waited and none waits any more. */
  #flush(): boolean {
    const hasWaited = this.#queuedBytes > 0;
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      if (this.#windowBytes === 0) return false;
      if (this.#channel.isBlocked) {
        this.#channel.whenDrained(this.#retry);
        return false;
      }
      const piece = first.subarray(0, Math.min(this.#windowBytes, PIECE_BYTES));
      if (piece.length === first.length) this.#queue.shift();
      else this.#queue[0] = first.subarray(piece.length);
      this.#windowBytes -= piece.length;
      this.#queuedBytes -= piece.length;
      const isLast = this.#isEnding && this.#queue.length === 0;
      this.#channel.write(dataFrame(this.#exchange, isLast, piece));
      if (isLast) this.#finish();
    }
    if (this.#isEnding && !this.#isClosed) {
      this.#channel.write(dataFrame(this.#exchange, true, EMPTY));
      this.#finish();
    }
    return hasWaited;
  }

  #finish(): void {
    this.#isClosed = true;
    this.#onEnded?.();
  }
}

/** Counts the bytes of one body that the other side has sent, and reports those that were read. */
export class BodyReceiver {
  readonly #channel: Channel;
  readonly #exchange: number;
  #allowedBytes = WINDOW_BYTES;
  #unreportedBytes = 0;

  constructor(channel: Channel, exchange: number) {
    this.#channel = channel;
    this.#exchange = exchange;
  }

  /** Counts received bytes. @throws {RangeError} if the other side was not allowed to send them. */
  receive(bytes: number): void {
    this.#allowedBytes -= bytes;
    if (this.#allowedBytes < 0) throw new RangeError('a body exceeds its window');
  }

  /** Counts bytes that were read, so that the other side may send as many again. */
  consume(bytes: number): void {
    this.#unreportedBytes += bytes;
    if (this.#unreportedBytes < REPORT_BYTES) return;
    this.#channel.write(numberFrame(FRAME.window, this.#exchange, this.#unreportedBytes));
    this.#allowedBytes += this.#unreportedBytes;
    this.#unreportedBytes = 0;
  }
}

import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';

/** The first buffer of a body that arrives in several chunks, and the factor by which the next ones are larger. */
const FIRST_BYTES = 131_072;
const GROWTH = 4;

const EMPTY = Buffer.alloc(0);

/** Collects the chunks of a UTF-8 body. The chunks are valid only during `add`. A body in a single chunk is not copied. */
export class ResponseBody {
  /** The declared length; `Infinity` without one. */
  readonly #length: number;
  #bytes = 0;
  #text: string | undefined;
  #buffer = EMPTY;

  constructor(contentLength: string | string[] | undefined) {
    const length = typeof contentLength === 'string' ? Number(contentLength) : Infinity;
    this.#length = Number.isNaN(length) ? Infinity : length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(chunk: Buffer): void {
    const at = this.#bytes;
    this.#bytes += chunk.length;
    if (chunk.length === this.#length) {
      this.#text = chunk.toString('utf8');
      return;
    }
    if (this.#bytes > this.#buffer.length) this.#grow();
    chunk.copy(this.#buffer, at);
  }

  /** Returns the whole body, without a byte order mark. To be called once, at the end. */
  text(): string {
    return withoutByteOrderMark(this.#text ?? this.#buffer.toString('utf8', 0, this.#bytes));
  }

  /** Makes the buffer larger, by and by: a server may declare more than it sends. */
  #grow(): void {
    const wanted = Math.max(FIRST_BYTES, GROWTH * this.#buffer.length);
    const grown = Buffer.allocUnsafeSlow(Math.max(this.#bytes, Math.min(this.#length, wanted)));
    this.#buffer.copy(grown);
    this.#buffer = grown;
  }
}

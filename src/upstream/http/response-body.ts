/** Up to this length, a body is collected in one buffer of its declared length. */
const MAX_PREALLOCATED_BYTES = 1_048_576;

/** Collects the chunks of a UTF-8 body. The chunks are valid only during `add`. A body in a single chunk is not copied. */
export class ResponseBody {
  /** The declared length; NaN without one. */
  readonly #length: number;
  #bytes = 0;
  #text: string | undefined;
  #buffer: Buffer | undefined;
  #chunks: Buffer[] = [];

  constructor(contentLength: string | string[] | undefined) {
    this.#length = typeof contentLength === 'string' ? Number(contentLength) : Number.NaN;
  }

  /** Number of bytes so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Appends a chunk. */
  add(chunk: Buffer): void {
    const at = this.#bytes;
    this.#bytes += chunk.length;
    if (chunk.length === this.#length) {
      this.#text = chunk.toString('utf8');
      return;
    }
    if (at === 0 && this.#length <= MAX_PREALLOCATED_BYTES) this.#buffer = Buffer.allocUnsafeSlow(this.#length);
    if (this.#buffer === undefined) this.#chunks.push(Buffer.from(chunk));
    else chunk.copy(this.#buffer, at);
  }

  /** Returns the whole body. To be called once, at the end. */
  text(): string {
    if (this.#text !== undefined) return this.#text;
    if (this.#buffer !== undefined) return this.#buffer.toString('utf8', 0, this.#bytes);
    return Buffer.concat(this.#chunks, this.#bytes).toString('utf8');
  }
}

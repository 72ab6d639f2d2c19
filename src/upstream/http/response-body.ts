import { isAscii } from 'node:buffer';

/** A body of this length is put together in one piece of memory, had as soon as the length is known. */
const MAX_AHEAD_BYTES = 1_048_576;

/** Puts a body in UTF-8 together from chunks that are lent: one that comes whole is never copied. */
export class ResponseBody {
  /** As the headers say; NaN where they do not. */
  readonly #length: number;
  #bytes = 0;
  #text: string | undefined;
  #isAscii = false;
  #whole: Buffer | undefined;
  #chunks: Buffer[] = [];

  constructor(contentLength: string | string[] | undefined) {
    this.#length = typeof contentLength === 'string' ? Number(contentLength) : Number.NaN;
  }

  /** So far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether what came is known to be ASCII. */
  get isAscii(): boolean {
    return this.#isAscii;
  }

  add(chunk: Buffer): void {
    const at = this.#bytes;
    this.#bytes += chunk.length;
    if (chunk.length === this.#length) {
      // By the bytes: what is no UTF-8 becomes text with as many characters, too.
      this.#isAscii = isAscii(chunk);
      this.#text = chunk.toString(this.#isAscii ? 'latin1' : 'utf8');
      return;
    }
    if (at === 0 && this.#length <= MAX_AHEAD_BYTES) this.#whole = Buffer.allocUnsafeSlow(this.#length);
    if (this.#whole === undefined) this.#chunks.push(Buffer.from(chunk));
    else chunk.copy(this.#whole, at);
  }

  /** The whole of it. Asked for once, at the end. */
  text(): string {
    if (this.#text !== undefined) return this.#text;
    if (this.#whole !== undefined) return this.#whole.toString('utf8', 0, this.#bytes);
    return Buffer.concat(this.#chunks, this.#bytes).toString('utf8');
  }
}

import type { Readable, Transform } from 'node:stream';
import {
  brotliDecompressSync,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  gunzipSync,
  inflateSync,
} from 'node:zlib';
import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';
import { isCode } from '../../thrown.ts';

/** The first buffer of a body that arrives in several chunks, and the factor by which the next ones are larger. */
const FIRST_BYTES = 131_072;
const GROWTH = 4;

const EMPTY = Buffer.alloc(0);

/** The bytes of one piece of a decompressed body. */
const PIECE_BYTES = 65_536;

interface Coding {
  readonly atOnce: (body: Buffer, options: { readonly maxOutputLength: number }) => Buffer;
  readonly byPieces: (options: { readonly chunkSize: number }) => Transform;
}

const GZIP: Coding = { atOnce: gunzipSync, byPieces: createGunzip };

const CODINGS: ReadonlyMap<string, Coding> = new Map([
  ['gzip', GZIP],
  ['x-gzip', GZIP],
  ['deflate', { atOnce: inflateSync, byPieces: createInflate }],
  ['br', { atOnce: brotliDecompressSync, byPieces: createBrotliDecompress }],
]);

/** Collects the chunks of a UTF-8 body. The chunks are valid only during `add`. A body in a single chunk is not copied. */
export class ResponseBody {
  /** The declared length; `Infinity` without one. */
  readonly #length: number;
  #bytes = 0;
  #text: string | undefined;
  #buffer = EMPTY;
  readonly #compression: string | undefined;

  constructor(contentLength: string | string[] | undefined, compression?: string) {
    this.#compression = compression;
    const length = typeof contentLength === 'string' ? Number(contentLength) : Infinity;
    this.#length = Number.isNaN(length) ? Infinity : length;
  }

  get isCompressed(): boolean {
    return this.#compression !== undefined;
  }

  /** Returns whether the body is not compressed, or in a known way. */
  get isReadable(): boolean {
    return this.#compression === undefined || CODINGS.has(this.#compression);
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(chunk: Buffer): void {
    const at = this.#bytes;
    this.#bytes += chunk.length;
    if (chunk.length === this.#length && this.#compression === undefined) {
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

  /**
   * Returns the decompressed body; undefined if it has more bytes than this.
   *
   * @throws {Error} if the body is not compressed as declared.
   */
  decompressed(maxBytes: number): Buffer | undefined {
    try {
      return this.#coding.atOnce(this.#whole, { maxOutputLength: maxBytes });
    } catch (thrown) {
      if (isCode(thrown, 'ERR_BUFFER_TOO_LARGE')) return undefined;
      throw thrown;
    }
  }

  /** Decompresses the body outside of the event loop. The stream fails if the body is not compressed as declared. */
  decompressedPieces(): Readable {
    return this.#coding.byPieces({ chunkSize: PIECE_BYTES }).end(this.#whole);
  }

  get #coding(): Coding {
    const coding = CODINGS.get(this.#compression ?? '');
    if (coding === undefined) throw new TypeError('the body is not compressed in a known way');
    return coding;
  }

  get #whole(): Buffer {
    return this.#buffer.subarray(0, this.#bytes);
  }

  /** Makes the buffer larger, by and by: a server may declare more than it sends. */
  #grow(): void {
    const wanted = Math.max(FIRST_BYTES, GROWTH * this.#buffer.length);
    const grown = Buffer.allocUnsafeSlow(Math.max(this.#bytes, Math.min(this.#length, wanted)));
    this.#buffer.copy(grown);
    this.#buffer = grown;
  }
}

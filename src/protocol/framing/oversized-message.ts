import type { Id } from '../jsonrpc.ts';

const HEAD_CHARS = 1_024;
const TAIL_CHARS = 256;

/** A message of more than this many times the limit is not read to its end. */
const MOST_TIMES = 8;

const VERSION = String.raw`"jsonrpc"\s*:\s*"2\.0"\s*`;
const ID = String.raw`"id"\s*:\s*(null|"[^"\\]{1,200}"|\d{1,20})\s*`;

/** The first members of a message, in a line or in the data of an event. Most servers write the id before the result. */
const HEAD = new RegExp(
  String.raw`^(?:(?:[^\r\n]*[\r\n])*?data:)?\s*\{\s*(?:${VERSION},\s*)?(?:${ID},\s*)?(?:${VERSION},\s*)?"(method|params|result|error)"\s*:`,
);

/** The last members of a message with an id, as the TypeScript SDK writes it. One brace follows, so that they are not members of the result. */
const TAIL = new RegExp(String.raw`,\s*(?:${VERSION},\s*)?${ID}(?:,\s*${VERSION})?\}\s*$`);

/** The beginning and the end of a line or event that is larger than the limit. They show its id. */
export class OversizedMessage {
  readonly #limit: number;
  #head = '';
  #tail = '';
  #length = 0;

  /** @param limit the largest accepted message, in the unit of its pieces. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get head(): string {
    return this.#head;
  }

  get tail(): string {
    return this.#tail;
  }

  /** True if the message is so large that its end is not worth the wait. */
  get isEndless(): boolean {
    return this.#length > MOST_TIMES * this.#limit;
  }

  /** Adds what follows of the message. */
  add(piece: string | Buffer): void {
    this.#length += piece.length;
    if (this.#head.length < HEAD_CHARS) this.#head += piece.toString().slice(0, HEAD_CHARS - this.#head.length);
    const end =
      typeof piece === 'string'
        ? piece.slice(-TAIL_CHARS)
        : piece.toString('utf8', Math.max(0, piece.length - TAIL_CHARS));
    this.#tail = (this.#tail + end).slice(-TAIL_CHARS);
  }

  /** Returns the id of the answered request; NaN if this is no answer to us, undefined if that cannot be seen. To be called at its end. */
  answeredId(): number | undefined {
    const { isAnswer, id } = this.#read();
    if (isAnswer === false) return NaN;
    return id === undefined ? undefined : Number(id.replaceAll('"', '').replace('null', 'NaN'));
  }

  /** Returns the id of a request to us; undefined if this is none, or its id cannot be seen. To be called at its end. */
  requestId(): Id | undefined {
    const { isAnswer, id } = this.#read();
    return isAnswer === false && id !== 'null' ? id : undefined;
  }

  /** Reads what can be seen. */
  #read(): { readonly isAnswer?: boolean; readonly id?: Id | undefined } {
    const [, first, kind] = HEAD.exec(this.#head) ?? [];
    if (kind === undefined) return {};
    return { isAnswer: kind === 'result' || kind === 'error', id: first ?? TAIL.exec(this.#tail)?.[1] };
  }
}

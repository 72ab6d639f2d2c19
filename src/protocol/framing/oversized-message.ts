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

/** The last members of an answer, as the TypeScript SDK writes it. One brace follows, so that they are not members of the result. */
const TAIL = new RegExp(String.raw`,\s*(?:${VERSION},\s*)?${ID}(?:,\s*${VERSION})?\}\s*$`);

/** The beginning and the end of a line or event that is larger than the limit. They show which request it answers. */
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
    const [, first, kind] = HEAD.exec(this.#head) ?? [];
    if (kind === undefined) return undefined;
    if (kind === 'method' || kind === 'params') return NaN;
    const id = first ?? TAIL.exec(this.#tail)?.[1];
    return id === undefined ? undefined : Number(id.replaceAll('"', '').replace('null', 'NaN'));
  }
}

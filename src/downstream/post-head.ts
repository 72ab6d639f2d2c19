import { postShape, type Shape } from './accept.ts';
import type { RequestHeaders } from './headers.ts';
import { refuseMedia } from './posted-text.ts';

const LENGTH = 'content-length';

/** What is known of a POST by its headers. */
export class PostHead {
  /** As they were, but for the length of the body. */
  readonly headers: RequestHeaders;
  readonly shape: Shape;
  readonly #raw: readonly string[];
  /** Where in the raw headers the length of the body stands; -1 where it does not. */
  readonly #lengthAt: number;

  private constructor(raw: readonly string[], headers: RequestHeaders, shape: Shape) {
    this.headers = headers;
    this.shape = shape;
    this.#raw = raw;
    const nameAt = raw.findIndex((text, at) => at % 2 === 0 && text.toLowerCase() === LENGTH);
    this.#lengthAt = nameAt < 0 ? -1 : nameAt + 1;
  }

  /** Undefined where nothing can be answered as the headers want it. */
  static of(raw: readonly string[], headers: RequestHeaders): PostHead | undefined {
    const shape = refuseMedia(headers) === undefined ? postShape(headers.accept) : undefined;
    return shape === undefined ? undefined : new PostHead(raw, headers, shape);
  }

  /** Whether these headers say the same to the letter, the length of the body aside. */
  isOf(raw: readonly string[]): boolean {
    if (raw.length !== this.#raw.length) return false;
    for (let at = 0; at < raw.length; at++) {
      if (raw[at] !== this.#raw[at] && at !== this.#lengthAt) return false;
    }
    return true;
  }

  /** The length of the body, in headers that {@link isOf} has found to be the same. */
  lengthIn(raw: readonly string[]): string | undefined {
    return this.#lengthAt < 0 ? undefined : raw[this.#lengthAt];
  }
}

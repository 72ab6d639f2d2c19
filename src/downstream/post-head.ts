import type { HeaderLookup } from '../protocol/mcp-headers.ts';
import { postShape, type Shape } from './accept.ts';
import type { RequestHeaders } from './headers.ts';
import { refuseMedia } from './posted-text.ts';

const LENGTH = 'content-length';
const VERSION = 'mcp-protocol-version';

/** Headers that say again what is in the body, and are held against it. */
const REPEATING = /^mcp-(?:method|name|param-.*)$/;

/** What is known of a POST by its headers, and holds for every other that differs only where one request differs from the next. */
export class PostHead {
  /** As they were, but for the length of the body. */
  readonly headers: RequestHeaders;
  readonly shape: Shape;
  readonly #raw: readonly string[];
  /** Where in the raw headers the values stand that may differ, by name in lower case. */
  readonly #own: ReadonlyMap<string, number>;

  private constructor(raw: readonly string[], headers: RequestHeaders, shape: Shape, own: ReadonlyMap<string, number>) {
    this.headers = headers;
    this.shape = shape;
    this.#raw = raw;
    this.#own = own;
  }

  /** Undefined where nothing can be answered as the headers want it, and where it takes a closer look. */
  static of(raw: readonly string[], headers: RequestHeaders): PostHead | undefined {
    const shape = refuseMedia(headers) === undefined ? postShape(headers.accept) : undefined;
    if (shape === undefined) return undefined;
    const own = new Map<string, number>();
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = raw[at]?.toLowerCase() ?? '';
      if (name !== LENGTH && !REPEATING.test(name)) continue;
      if (own.has(name)) return undefined;
      own.set(name, at + 1);
    }
    return new PostHead(raw, headers, shape, own);
  }

  /** Whether these headers say the same to the letter, but for what is each request's own. */
  isOf(raw: readonly string[]): boolean {
    if (raw.length !== this.#raw.length) return false;
    for (let at = 0; at < raw.length; at++) {
      if (raw[at] !== this.#raw[at] && !this.#isOwn(at)) return false;
    }
    return true;
  }

  #isOwn(at: number): boolean {
    for (const own of this.#own.values()) if (own === at) return true;
    return false;
  }

  /** The length of the body, in headers that {@link isOf} has found to be the same. */
  lengthIn(raw: readonly string[]): string | undefined {
    return this.#valueIn(raw, LENGTH);
  }

  /** Looks such headers up. Knows those a message of the modern era is held against. */
  lookupIn(raw: readonly string[]): HeaderLookup {
    return (wanted) => (wanted === VERSION ? this.headers.version : this.#valueIn(raw, wanted));
  }

  #valueIn(raw: readonly string[], name: string): string | undefined {
    const at = this.#own.get(name);
    return at === undefined ? undefined : raw[at];
  }
}

import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { HeaderLookup } from '../../protocol/mcp-headers.ts';
import { postShape, type Shape } from '../admission/accept.ts';
import type { RequestHeaders } from '../admission/headers.ts';
import { refuseMedia } from '../admission/posted-text.ts';

const LENGTH = 'content-length';
const VERSION = 'mcp-protocol-version';

/** Headers that say again what is in the body, and are held against it. */
const REPEATING = /^mcp-(?:method|name|param-.*)$/;

/** A header that one request has for itself: its name in lower case, and where in the raw headers its value stands. */
interface Own {
  readonly name: string;
  readonly at: number;
}

/** What is known of a POST by its headers, and holds for every other that differs only where one request differs from the next. */
export class KnownHeaders {
  /** As they were, but for the length of the body. */
  readonly headers: RequestHeaders;
  readonly shape: Shape;
  readonly #raw: readonly string[];
  readonly #merged: IncomingHttpHeaders;
  readonly #own: readonly Own[];

  private constructor(
    { rawHeaders, headers: merged }: IncomingMessage,
    headers: RequestHeaders,
    shape: Shape,
    own: readonly Own[],
  ) {
    this.headers = headers;
    this.shape = shape;
    this.#raw = rawHeaders;
    this.#merged = { ...merged };
    this.#own = own;
  }

  /** Undefined where nothing can be answered as the headers want it, and where it takes a closer look. */
  static of(incoming: IncomingMessage, headers: RequestHeaders): KnownHeaders | undefined {
    const raw = incoming.rawHeaders;
    const shape = refuseMedia(headers) === undefined ? postShape(headers.accept) : undefined;
    if (shape === undefined) return undefined;
    const own: Own[] = [];
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = raw[at]?.toLowerCase() ?? '';
      if (name !== LENGTH && !REPEATING.test(name)) continue;
      if (own.some((other) => other.name === name)) return undefined;
      own.push({ name, at: at + 1 });
    }
    return new KnownHeaders(incoming, headers, shape, own);
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
    for (const own of this.#own) if (own.at === at) return true;
    return false;
  }

  /** Such headers as Node would merge them. */
  mergedIn(raw: readonly string[]): IncomingHttpHeaders {
    const merged = { ...this.#merged };
    for (const { name, at } of this.#own) merged[name] = raw[at];
    return merged;
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
    for (const own of this.#own) if (own.name === name) return raw[own.at];
    return undefined;
  }
}

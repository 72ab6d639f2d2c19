import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { HeaderLookup } from '../../protocol/mcp-headers.ts';
import { postShape, type Shape } from '../admission/accept.ts';
import type { RequestHeaders } from '../admission/headers.ts';
import { refuseMedia } from '../admission/posted-text.ts';

const LENGTH = 'content-length';
const VERSION = 'mcp-protocol-version';

/** Headers that repeat members of the body, and are compared with them. */
const REPEATING = /^mcp-(?:method|name|param-.*)$/;

/** A header whose value differs between requests: its name in lower case, and the index of its value in the raw headers. */
interface Own {
  readonly name: string;
  readonly at: number;
}

/** The headers of a POST that was admitted, to recognise further ones that differ only in headers of {@link Own}. */
export class KnownHeaders {
  /** Of the first request. The length of the body is each request's own. */
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

  /** Undefined for headers that are refused or need the router. */
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

  /** Whether these headers are equal to the letter, except for {@link Own} ones. */
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

  /** Returns equal headers as Node merges them. */
  mergedIn(raw: readonly string[]): IncomingHttpHeaders {
    const merged = { ...this.#merged };
    for (const { name, at } of this.#own) merged[name] = raw[at];
    return merged;
  }

  /** Returns the Content-Length of equal headers, see {@link isOf}. */
  lengthIn(raw: readonly string[]): string | undefined {
    return this.#valueIn(raw, LENGTH);
  }

  /** Returns a lookup of the headers that a modern message is compared with. */
  lookupIn(raw: readonly string[]): HeaderLookup {
    return (wanted) => (wanted === VERSION ? this.headers.version : this.#valueIn(raw, wanted));
  }

  #valueIn(raw: readonly string[], name: string): string | undefined {
    for (const own of this.#own) if (own.name === name) return raw[own.at];
    return undefined;
  }
}

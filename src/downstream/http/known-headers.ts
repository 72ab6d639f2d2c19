import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { HeaderLookup } from '../../protocol/mcp-headers.ts';
import { postShape, type Shape } from '../admission/accept.ts';
import type { RequestHeaders } from '../admission/headers.ts';
import { refuseMedia } from '../admission/posted-text.ts';

const LENGTH = 'content-length';
const VERSION = 'mcp-protocol-version';

/** Headers that repeat members of the body, and are compared with them. */
const REPEATING = /^mcp-(?:method|name|param-.*)$/;

/**
 * A header whose value differs between requests: its lower-case name, and the index of its value in the raw headers.
 */
interface VaryingHeader {
  readonly name: string;
  readonly at: number;
}

/**
 * The headers of an admitted POST. Recognises later requests that differ only in the values of {@link VaryingHeader}s.
 */
export class KnownHeaders {
  /** The headers of the first request. `contentLength` is that of the first request too. */
  readonly headers: RequestHeaders;
  readonly shape: Shape;
  readonly #raw: readonly string[];
  readonly #merged: IncomingHttpHeaders;
  readonly #varying: readonly VaryingHeader[];

  private constructor(
    { rawHeaders, headers: merged }: IncomingMessage,
    headers: RequestHeaders,
    shape: Shape,
    varying: readonly VaryingHeader[],
  ) {
    this.headers = headers;
    this.shape = shape;
    this.#raw = rawHeaders;
    this.#merged = { ...merged };
    this.#varying = varying;
  }

  /** Returns undefined for headers that are refused or that need the router. */
  static of(incoming: IncomingMessage, headers: RequestHeaders): KnownHeaders | undefined {
    const raw = incoming.rawHeaders;
    const shape = refuseMedia(headers) === undefined ? postShape(headers.accept) : undefined;
    if (shape === undefined) return undefined;
    const varying: VaryingHeader[] = [];
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = raw[at]?.toLowerCase() ?? '';
      if (name !== LENGTH && !REPEATING.test(name)) continue;
      if (varying.some((other) => other.name === name)) return undefined;
      varying.push({ name, at: at + 1 });
    }
    return new KnownHeaders(incoming, headers, shape, varying);
  }

  /** Returns whether these headers are equal, except for the values of {@link VaryingHeader}s. */
  isOf(raw: readonly string[]): boolean {
    if (raw.length !== this.#raw.length) return false;
    for (let at = 0; at < raw.length; at++) {
      if (raw[at] !== this.#raw[at] && !this.#isVarying(at)) return false;
    }
    return true;
  }

  #isVarying(at: number): boolean {
    for (const varying of this.#varying) if (varying.at === at) return true;
    return false;
  }

  /** Returns the merged headers of a request with equal headers, in Node's form. */
  mergedIn(raw: readonly string[]): IncomingHttpHeaders {
    const merged = { ...this.#merged };
    for (const { name, at } of this.#varying) merged[name] = raw[at];
    return merged;
  }

  /** Returns the Content-Length of a request with equal headers; see {@link isOf}. */
  lengthIn(raw: readonly string[]): string | undefined {
    return this.#valueIn(raw, LENGTH);
  }

  /** Returns a look-up of the headers that are compared with a modern message. */
  lookupIn(raw: readonly string[]): HeaderLookup {
    return (wanted) => (wanted === VERSION ? this.headers.version : this.#valueIn(raw, wanted));
  }

  #valueIn(raw: readonly string[], name: string): string | undefined {
    for (const varying of this.#varying) if (varying.name === name) return raw[varying.at];
    return undefined;
  }
}

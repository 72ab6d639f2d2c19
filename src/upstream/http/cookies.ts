import { type LimitName, LIMITS } from '../../limits.ts';

/** The time of a cookie that its server removes. */
const REMOVED = /^(?:0|-\d+)$/;

/**
 * The cookies of one connection to an upstream. By them, a load balancer leads all requests of a session to the server that has it.
 *
 * They go only to the origin that has sent them, whatever `Domain` they name. They are kept as long as the connection, unless the server
 * removes them.
 *
 * @see https://www.rfc-editor.org/rfc/rfc6265#section-5
 */
export class Cookies {
  readonly #isSecure: boolean;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  /** `name=value` and path, by both of their names. */
  readonly #kept = new Map<string, { readonly pair: string; readonly path: string }>();
  #bytes = 0;

  /**
   * @param url of the upstream.
   * @param onLimit called for each cookie that is not kept, because there is no room for it.
   */
  constructor(url: string, onLimit?: (limit: LimitName) => void) {
    this.#isSecure = new URL(url).protocol === 'https:';
    this.#onLimit = onLimit;
  }

  /**
   * Keeps, replaces or removes the cookies of a response.
   *
   * @param lines the `Set-Cookie` headers.
   * @param requestPath the path of the request, without its query.
   * @returns whether a cookie has changed.
   */
  update(lines: readonly string[], requestPath: string, nowMs: number): boolean {
    let hasChanged = false;
    for (const line of lines) if (this.#take(line, requestPath, nowMs)) hasChanged = true;
    return hasChanged;
  }

  /** Returns the value of the `Cookie` header of a request to this path; empty if it gets none. */
  headerFor(path: string): string {
    return [...this.#kept.values()].flatMap((cookie) => (covers(cookie.path, path) ? cookie.pair : [])).join('; ');
  }

  /** The cookies as `Set-Cookie` headers, from which another connection can have them too. */
  get lines(): readonly string[] {
    return [...this.#kept.values()].map(({ pair, path }) => `${pair}; Path=${path}`);
  }

  #take(line: string, requestPath: string, nowMs: number): boolean {
    const [pair = '', ...rest] = line.split(';').map((part) => part.trim());
    const equals = pair.indexOf('=');
    if (equals < 1) return false;
    const attributes = new Map(rest.map((part) => attributeOf(part)));
    if (attributes.has('secure') && !this.#isSecure) return false;
    const named = attributes.get('path') ?? '';
    const path = named.startsWith('/') ? named : folderOf(requestPath);
    const key = `${pair.slice(0, equals).trim()};${path}`;
    const kept = this.#kept.get(key);
    const cookie = isRemoved(attributes, nowMs) ? undefined : { pair, path };
    if (cookie?.pair === kept?.pair) return false;
    const moreBytes = sizeOf(cookie) - sizeOf(kept);
    if (cookie !== undefined && this.#bytes + moreBytes > LIMITS.upstreamCookieBytes) {
      this.#onLimit?.('upstreamCookieBytes');
      return false;
    }
    this.#bytes += moreBytes;
    this.#kept.delete(key);
    if (cookie !== undefined) this.#kept.set(key, cookie);
    return true;
  }
}

function sizeOf(cookie: { readonly pair: string; readonly path: string } | undefined): number {
  return cookie === undefined ? 0 : cookie.pair.length + cookie.path.length;
}

/** Returns the name in lower case and the value of an attribute. */
function attributeOf(text: string): [string, string] {
  const equals = text.indexOf('=');
  if (equals < 0) return [text.toLowerCase(), ''];
  return [text.slice(0, equals).trim().toLowerCase(), text.slice(equals + 1).trim()];
}

function isRemoved(attributes: ReadonlyMap<string, string>, nowMs: number): boolean {
  const maxAge = attributes.get('max-age');
  if (maxAge !== undefined && /^-?\d+$/.test(maxAge)) return REMOVED.test(maxAge);
  return Date.parse(attributes.get('expires') ?? '') <= nowMs;
}

/** Returns the path of a cookie that names none. */
function folderOf(path: string): string {
  const folder = path.slice(0, path.lastIndexOf('/'));
  return folder === '' ? '/' : folder;
}

/** Returns whether requests to a path get the cookies of another one. */
function covers(cookiePath: string, path: string): boolean {
  if (!path.startsWith(cookiePath)) return false;
  return path.length === cookiePath.length || cookiePath.endsWith('/') || path[cookiePath.length] === '/';
}

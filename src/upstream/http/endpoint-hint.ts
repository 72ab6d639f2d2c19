import type { HttpTarget } from '../../config/values/upstream-config.ts';
import type { GatewayError } from '../../errors.ts';
import { shownText } from '../../peer-text.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

/** The cause of a `GatewayError` if the answer is not one of MCP, such as a page or that of another API. */
export class NotMcpError extends Error {
  override readonly name = 'NotMcpError';

  constructor() {
    super('is its URL that of the MCP endpoint, or does a page for signing in answer?');
  }
}

/** Statuses of a server without an MCP endpoint at this path. */
const NOT_HERE = new Set([404, 405, 410]);

const MAX_LOCATION_CHARS = 2_048;

/** Statuses with which servers of Streamable HTTP refuse the GET of HTTP+SSE. */
const NO_SSE = new Set([400, 405, 406]);

const ENDPOINT = /\/mcp\/?$/;
const SSE_ENDPOINT = /\/sse\/?$/;

/** Matches path segments that are words, such as `api` or `v1`. Other segments may be keys, as with some providers. */
const WORD = /^(?:[A-Za-z][A-Za-z._~-]{0,19}\d{0,2})?$/;

/**
 * Returns a sentence for the operator about the URL: it has no MCP endpoint, redirects, or may need another scheme or transport. Undefined
 * for any other failure. The sentence contains no query, no credentials, and no path segment that may be a key.
 */
export function endpointHint({ kind, url }: HttpTarget, { code, cause }: GatewayError): string | undefined {
  const { origin, pathname, protocol } = new URL(url);
  const path = shownPath(pathname);
  if (cause instanceof NotMcpError) return ENDPOINT.test(path) ? undefined : noEndpoint(origin, path);
  if (!(cause instanceof HttpStatusError)) {
    // A server that expects TLS closes the connection without a reason.
    const mayExpectTls = code === 'upstream-lost' && protocol === 'http:' && cause instanceof Error;
    return mayExpectTls ? `${cause.message}; is its URL https://?` : undefined;
  }
  if (cause.location !== undefined) return redirectHint(new URL(url), cause.location);
  if (kind === 'sse' && NO_SSE.has(cause.status)) return 'it may speak Streamable HTTP; set type: http';
  return NOT_HERE.has(cause.status) ? noEndpoint(origin, path) : undefined;
}

function noEndpoint(origin: string, path: string): string {
  const base = withoutSlash(path.replace(SSE_ENDPOINT, ''));
  const meant = path.includes('…') ? 'this path with /mcp at its end' : `${origin}${base}/mcp`;
  const question = ENDPOINT.test(path) ? '' : `; did you mean ${meant}?`;
  return `there is no MCP endpoint at ${origin}${path}${question}`;
}

/** Returns the URL to configure if a redirect leads to another form of the same one, else the origin to which it leads. */
function redirectHint(from: URL, location: string): string | undefined {
  // The time to parse a host grows with the square of its length.
  const to = location.length > MAX_LOCATION_CHARS ? null : URL.parse(location, from.href);
  if (to === null || !/^https?:$/.test(to.protocol)) return undefined;
  const isSame = to.hostname === from.hostname && withoutSlash(to.pathname) === withoutSlash(from.pathname);
  // Servers behind a proxy that ends TLS redirect to http.
  const origin = to.protocol === 'https:' ? to.origin : from.origin;
  const isOther = origin !== from.origin || to.pathname !== from.pathname;
  if (!isSame || !isOther) return `it leads to ${shownText(to.origin)}`;
  const path = shownPath(to.pathname);
  if (`${from.search}${from.username}${from.password}` === '' && !path.includes('…'))
    return `set url to ${origin}${path}`;
  return `begin url with ${origin}, and end its path with ${to.pathname.endsWith('/') ? 'a' : 'no'} slash`;
}

function withoutSlash(path: string): string {
  return path.replace(/\/$/, '');
}

function shownPath(path: string): string {
  return path
    .split('/')
    .map((segment) => (WORD.test(segment) ? segment : '…'))
    .join('/');
}

import { shownText } from '../../peer-text.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

/** Statuses of a server without an MCP endpoint at this path. */
const NOT_HERE = new Set([404, 405, 410]);

const MAX_LOCATION_CHARS = 2_048;

const ENDPOINT = /\/(?:mcp|sse)\/?$/;

/** Matches path segments that are words, such as `api` or `v1`. Other segments may be keys, as with some providers. */
const WORD = /^(?:[A-Za-z][A-Za-z._~-]{0,19}\d{0,2})?$/;

/**
 * Returns a sentence for the operator if the server has no MCP endpoint at this URL, or redirects; undefined for any other failure. The
 * sentence contains no query, no credentials, and no path segment that may be a key.
 */
export function endpointHint(url: string, cause: unknown): string | undefined {
  if (!(cause instanceof HttpStatusError)) return undefined;
  if (cause.location !== undefined) return redirectHint(new URL(url), cause.location);
  if (!NOT_HERE.has(cause.status)) return undefined;
  const { origin, pathname } = new URL(url);
  const path = shownPath(pathname);
  const meant = path.includes('…') ? 'this path with /mcp at its end' : `${origin}${withoutSlash(path)}/mcp`;
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

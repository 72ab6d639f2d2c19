import { type HttpTarget, RESERVED_HEADERS } from '../../config/values/upstream-config.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { ResponseHeaders } from '../../http1/wire.ts';
import type { HeaderList, RequestHead } from '../../http1/request.ts';
import type { TraceContext } from '../../protocol/trace-context.ts';

/** Returns the headers of every request to the target: those of the config, `accept-encoding` and `user-agent`. */
export function configuredHeaders(target: HttpTarget, userAgent: string): HeaderList {
  const list: string[] = ['accept-encoding', 'identity'];
  let hasUserAgent = false;
  for (const [name, value] of Object.entries(target.headers)) {
    const lower = name.toLowerCase();
    if (RESERVED_HEADERS.has(lower)) continue;
    hasUserAgent ||= lower === 'user-agent';
    list.push(lower, value);
  }
  return hasUserAgent ? list : [...list, 'user-agent', userAgent];
}

const TRACE_HEADERS: ReadonlySet<string> = new Set(['traceparent', 'tracestate']);

/** Returns a head with the trace context of one message, in place of one that the config gives to all messages. */
export function tracedHead(head: RequestHead, { traceparent, tracestate }: TraceContext): RequestHead {
  const state = tracestate === undefined ? [] : ['tracestate', tracestate];
  return head.with(['traceparent', traceparent, ...state], TRACE_HEADERS);
}

/** Returns the media type: `Application/JSON; charset=utf-8` → `application/json`. Empty if there is none; the first of several. */
export function mediaType(headers: ResponseHeaders): string {
  const header = headers['content-type'];
  if (header === 'application/json' || header === 'text/event-stream') return header;
  const [type = ''] = String(header ?? '').split(/[;,]/, 1);
  return type.trim().toLowerCase();
}

const COMPRESSIONS: ReadonlySet<string> = new Set([
  'gzip',
  'x-gzip',
  'deflate',
  'br',
  'zstd',
  'compress',
  'x-compress',
]);

/** Returns how the body is compressed, although our request does not permit it. Other codings, such as `utf-8`, are mistakes. */
export function compressionOf({ 'content-encoding': encoding }: ResponseHeaders): string | undefined {
  if (encoding === undefined) return undefined;
  const codings = String(encoding).toLowerCase().split(',');
  const compressions = codings.map((coding) => coding.trim()).filter((coding) => COMPRESSIONS.has(coding));
  return compressions.length === 0 ? undefined : compressions.join(', ');
}

/** Returns `Retry-After` (a number of seconds, or a date) in milliseconds from now; undefined if it is absent or invalid. */
export function retryAfterMs(headers: ResponseHeaders, nowMs: number): number | undefined {
  const header = headers['retry-after'];
  if (typeof header !== 'string') return undefined;
  if (/^\d{1,9}$/.test(header)) return Number(header) * 1_000;
  const dateMs = Date.parse(header);
  return Number.isNaN(dateMs) ? undefined : Math.max(0, dateMs - nowMs);
}

/** Returns the `Location` of a redirect; undefined for any other response. */
export function redirectLocation(status: number, { location }: ResponseHeaders): string | undefined {
  return status < 400 && typeof location === 'string' ? location : undefined;
}

const MAX_SCOPES_CHARS = 200;

/**
 * Returns the scopes, separated by spaces, that a 403 asks for with `insufficient_scope`. Empty if it names none that can be shown,
 * undefined for any other challenge.
 *
 * @see https://www.rfc-editor.org/rfc/rfc6750#section-3
 */
export function missingScopes({ 'www-authenticate': header = '' }: ResponseHeaders): string | undefined {
  const challenge = [header].flat().find((one) => /^Bearer\b.*\berror="?insufficient_scope\b/i.test(one));
  if (challenge === undefined) return undefined;
  const [, scopes = ''] = /[\s,]scope="([\x21\x23-\x5b\x5d-\x7e ]*)"/i.exec(challenge) ?? [];
  return scopes.length > MAX_SCOPES_CHARS ? '' : scopes.trim();
}

/** Returns `Last-Event-ID` as header text (UTF-8, by the specification); undefined if a header cannot carry the id. */
export function lastEventIdHeader(id: string): string | undefined {
  if (id === '' || /\p{Cc}/u.test(id)) return undefined;
  return Buffer.from(id, 'utf8').toString('latin1');
}

interface GivenSession {
  readonly id?: string;
  readonly problem?: string;
  /** The bound that the id exceeds. */
  readonly limit?: LimitName;
}

/**
 * Returns the session id of a response; undefined if it has none, or an empty one. A proxy may repeat the header.
 *
 * @returns also what is wrong with an id that cannot be used.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
 */
export function sessionIdOf({ 'mcp-session-id': header }: ResponseHeaders): GivenSession {
  const [id, ...others] = new Set([header ?? []].flat().filter((one) => one !== ''));
  if (id === undefined) return {};
  if (others.length > 0) return { problem: 'gave out several session ids at once' };
  if (id.length > LIMITS.upstreamSessionIdChars) {
    const problem = `gave out a session id of more than ${LIMITS.upstreamSessionIdChars} characters`;
    return { problem, limit: 'upstreamSessionIdChars' };
  }
  return /^[\x21-\x7e]+$/.test(id) ? { id } : { problem: 'gave out a session id that is not visible ASCII' };
}

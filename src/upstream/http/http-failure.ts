import { type Executed, GatewayError } from '../../errors.ts';
import { EventTooLargeError } from '../../protocol/event-stream.ts';
import { MessageError, parseMessage, type Response } from '../../protocol/jsonrpc.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

/** An answer whose status is not success. */
export interface Refused {
  readonly status: number;
  /** The body, where it claims to be JSON and may be read. */
  readonly body: string | undefined;
  readonly retryAfterMs: number | undefined;
}

/** What a {@link Refused} answer means. */
export type Refusal =
  /** It is the upstream's JSON-RPC answer all the same. `isNamed`: it came with the id of the request. */
  | { readonly kind: 'answer'; readonly response: Response; readonly isNamed: boolean }
  /** The upstream no longer knows our session; it ran nothing. */
  | { readonly kind: 'session-lost' }
  | { readonly kind: 'failed'; readonly error: GatewayError };

/** Statuses by which a server or what stands before it says that it did not take the request. */
const NOT_TAKEN = new Set([404, 405, 406, 415, 421, 426]);

const METHOD_NOT_FOUND = -32601;

const MAX_MESSAGE_CHARS = 200;

function readResponse(body: string | undefined): Response | undefined {
  if (body === undefined) return undefined;
  try {
    const message = parseMessage(body);
    return message.kind === 'result' || message.kind === 'error' ? message : undefined;
  } catch (thrown) {
    // A page that only claims to be JSON.
    if (thrown instanceof MessageError) return undefined;
    throw thrown;
  }
}

/**
 * @param id of the request, or undefined for a message without one.
 * @param inSession whether the message named a session.
 */
export function readRefusal(
  upstream: string,
  refused: Refused,
  id: number | undefined,
  method: string | undefined,
  inSession: boolean,
): Refusal {
  const { status } = refused;
  const response = readResponse(refused.body);
  const error = response?.kind === 'error' ? response.error : undefined;
  const own = response !== undefined && response.id === String(id);
  if (status === 404 && inSession && !(own && error?.code === METHOD_NOT_FOUND)) return { kind: 'session-lost' };
  if (own && status !== 429) return { kind: 'answer', response, isNamed: true };
  if (status === 400 && error !== undefined && response?.id === 'null') {
    // What the SDK's example servers say instead of 404 when they have lost a session.
    if (inSession && /session|not initialized/i.test(error.message)) return { kind: 'session-lost' };
    // A 400 to `initialize` may also be an older server, which the caller has to find out.
    if (id !== undefined && method !== 'initialize') {
      return { kind: 'answer', response: { kind: 'error', id: String(id), error }, isNamed: false };
    }
  }
  return { kind: 'failed', error: statusFailure(upstream, refused, error?.message) };
}

/** The failure a status means. Nothing of the answer but the message of a JSON-RPC error is repeated. */
export function statusFailure(upstream: string, { status, retryAfterMs }: Refused, reason?: string): GatewayError {
  const cause = new HttpStatusError(status);
  const named = `upstream "${upstream}"`;
  const data = retryAfterMs === undefined ? {} : { data: { retryAfterMs } };
  if (status === 401 || status === 403) {
    const message = `${named} refused our credentials (HTTP ${status}); an operator has to configure ones it accepts`;
    return new GatewayError('upstream-unavailable', { upstream, message, executed: 'no', retryable: false }, cause);
  }
  if (status === 429) {
    const message = `${named} takes no more requests for now (HTTP 429)`;
    return new GatewayError('overloaded', { upstream, message, executed: 'no', ...data }, cause);
  }
  if (status === 413) {
    const message = `${named} refused the message as too large (HTTP 413)`;
    return new GatewayError('too-large', { upstream, message, executed: 'no' }, cause);
  }
  if (status < 400) {
    const message = `${named} answered with a redirect (HTTP ${status}), which is not followed; configure its final address`;
    return new GatewayError('upstream-protocol', { upstream, message }, cause);
  }
  const executed: Executed = NOT_TAKEN.has(status) ? 'no' : 'unknown';
  const because = reason === undefined ? '' : `: ${reason.slice(0, MAX_MESSAGE_CHARS)}`;
  const message = `${named} answered HTTP ${status}${because}`;
  return new GatewayError('upstream-unavailable', { upstream, message, executed, retryable: false, ...data }, cause);
}

/** Why no connection came about, by the code of the error. */
const NO_CONNECTION: ReadonlyMap<string, string> = new Map([
  ['unsendable', 'has a header in its config that HTTP cannot carry; check for line breaks and special characters'],
  ['ECONNREFUSED', 'refused the connection; check that it is running'],
  ['ENOTFOUND', 'has a host name that does not exist'],
  ['EAI_AGAIN', 'has a host name that could not be looked up'],
  ['connect-timeout', 'did not accept a connection in time'],
  ['UND_ERR_CONNECT_TIMEOUT', 'did not accept a connection in time'],
  ['ETIMEDOUT', 'did not accept a connection in time'],
  ['EHOSTUNREACH', 'cannot be reached: there is no route to its host'],
  ['ENETUNREACH', 'cannot be reached: there is no route to its network'],
  ['ECONNRESET', 'closed the connection before the request was sent'],
  ['closed', 'closed the connection before the request was sent'],
  ['UND_ERR_SOCKET', 'closed the connection before the request was sent'],
  ['destroyed', 'is being disconnected'],
  ['UND_ERR_DESTROYED', 'is being disconnected'],
  ['UND_ERR_CLOSED', 'is being disconnected'],
]);

const TLS = /^(?:CERT_|ERR_TLS|ERR_SSL|EPROTO|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|HOSTNAME_MISMATCH)/;

function codeOf(thrown: unknown): string {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : '';
}

/**
 * The failure an error of the HTTP client means.
 *
 * @param written whether a byte of the request may have left.
 */
export function wireFailure(upstream: string, thrown: unknown, written: boolean): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  const named = `upstream "${upstream}"`;
  const code = codeOf(thrown);
  if (!written) {
    const why =
      NO_CONNECTION.get(code) ??
      (TLS.test(code) ? `could not be connected to securely (${code})` : 'could not be connected to');
    return new GatewayError('upstream-unavailable', { upstream, message: `${named} ${why}`, executed: 'no' }, thrown);
  }
  if (thrown instanceof EventTooLargeError) {
    return new GatewayError('too-large', { upstream, message: `${named} sent a message beyond the limit` }, thrown);
  }
  if (code === 'headers-timeout' || code === 'UND_ERR_HEADERS_TIMEOUT') {
    const message = `${named} accepted the request and did not begin to answer in time`;
    return new GatewayError('upstream-timeout', { upstream, message }, thrown);
  }
  const isNoHttp = thrown instanceof Error && thrown.name === 'HTTPParserError';
  if (isNoHttp || code === 'not-http' || code === 'UND_ERR_HEADERS_OVERFLOW') {
    return new GatewayError('upstream-protocol', { upstream, message: `${named} answered with invalid HTTP` }, thrown);
  }
  const message = `${named} broke the connection before it answered`;
  return new GatewayError('upstream-lost', { upstream, message }, thrown);
}

import { resultOrError, systemCode } from '../../thrown.ts';
import { type ErrorCode, type ErrorDetail, type Executed, GatewayError, upstreamError } from '../../errors.ts';
import { EventTooLargeError } from '../../protocol/framing/event-stream.ts';
import { MessageError, parseMessage, type Response, type RpcError } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';
import { sentBackId } from '../rpc/request-ids.ts';

export interface ErrorResponse {
  readonly status: number;
  /** The body, if its media type is JSON and it may be read. */
  readonly body: string | undefined;
  /** The text of a refusal that is no answer, if it may be read. It shows whether the session is lost; clients never see it. */
  readonly text?: string | undefined;
  readonly retryAfterMs: number | undefined;
  /** The scopes that a 403 asks for; empty for unknown ones, undefined if it does not. */
  readonly missingScopes?: string | undefined;
  /** True if it has a `WWW-Authenticate` header. */
  readonly hasChallenge?: boolean;
  /** The `Location` of a redirect; for operators only. */
  readonly location?: string | undefined;
}

/** How a refused request ends, unless the refusal is about the session. */
export type RefusalOutcome =
  /** The body is the JSON-RPC answer of the upstream. `isNamed`: it has the id of the request. */
  | { readonly kind: 'answer'; readonly response: Response; readonly isNamed: boolean }
  | { readonly kind: 'failed'; readonly error: GatewayError };

export type ErrorResponseMeaning =
  | RefusalOutcome
  /** The upstream does not know our session any more, and has not run the request. */
  | { readonly kind: 'session-lost' }
  /** The upstream may not know our session any more. `mayHaveRun`: the request may have run nevertheless. */
  | { readonly kind: 'session-doubted'; readonly mayHaveRun: boolean; readonly outcome: RefusalOutcome };

/** Statuses with which a server, or a proxy in front of it, refuses a request without running it. */
const NOT_PROCESSED = new Set([404, 405, 406, 415, 421, 426]);

const MAX_MESSAGE_CHARS = 200;

/** Statuses with which servers refuse a message of a session that they do not know. */
export const SESSION_REFUSALS = new Set([400, 401, 403, 404, 409, 410, 422]);

/** Words of servers that do not know a session. Others may be about a session of the tool, such as a chat. */
const SESSION_UNKNOWN =
  /\b(?:no valid|invalid|unknown|missing|expired) (?:mcp[- ]?)?session|\bsession(?: id)?\b.{0,40}\b(?:not found|not initialized|invalid|unknown|expired|terminated|does not exist|required)\b|\bserver (?:is )?not initialized/i;

/** Errors of servers of the modern era, which has no sessions. In its place there may have been one with our session. */
const MODERN_ONLY: ReadonlySet<number> = new Set([RPC.headerMismatch, RPC.unsupportedVersion]);

/** Statuses with which a server speaks for itself. With 403, 409 and 410 it may pass on what the service behind a tool has answered. */
const OF_SERVER: ReadonlySet<number> = new Set([400, 401, 404, 422]);

/** A 404 to one of these does not mean that the server has no such method. */
const HAVE_ALL: ReadonlySet<string | undefined> = new Set(['tools/call', 'notifications/initialized']);

/** Returns whether an error of JSON-RPC may say that our session is unknown. Some servers put it into an answer with our id. */
export function mayLackSession({ code, message }: RpcError): boolean {
  return code !== RPC.methodNotFound && SESSION_UNKNOWN.test(message);
}

/** Judges by a refusal whether the upstream knows our session. @param isOwn whether the response has our id. */
function judgeSession(
  { status, text, body }: ErrorResponse,
  response: Response | undefined,
  isOwn: boolean,
  method: string | undefined,
): 'known' | 'doubted' | 'lost' {
  const error = response?.kind === 'error' ? response.error : undefined;
  if (error?.code === RPC.methodNotFound || (isOwn && error === undefined)) return 'known';
  const words = (error?.message ?? text ?? body ?? '').slice(0, MAX_MESSAGE_CHARS);
  const saysUnknown = SESSION_UNKNOWN.test(words) || (error !== undefined && MODERN_ONLY.has(error.code));
  // Some servers answer 404 for methods that they do not have.
  const isGone = !isOwn && (status === 404 || status === 410);
  if (!saysUnknown && !isGone) return 'known';
  if (method === 'ping') return 'lost';
  const isCertain = OF_SERVER.has(status) && (saysUnknown || HAVE_ALL.has(method));
  // An answer with our id may come from a tool that has sessions of its own.
  return isCertain && !isOwn ? 'lost' : 'doubted';
}

function readResponse(body: string | undefined): Response | undefined {
  if (body === undefined) return undefined;
  // Some servers and proxies send error pages with the media type of JSON.
  const message = resultOrError(MessageError, () => parseMessage(body));
  return 'kind' in message && (message.kind === 'result' || message.kind === 'error') ? message : undefined;
}

/**
 * Decides the meaning of a response whose status is not 2xx. Pure.
 *
 * @param id our id of the request; undefined for a notification or response.
 * @param inSession whether the message had a session id.
 */
export function interpretErrorResponse(
  upstream: string,
  refused: ErrorResponse,
  id: number | undefined,
  method: string | undefined,
  inSession: boolean,
): ErrorResponseMeaning {
  const { status } = refused;
  const response = readResponse(refused.body);
  const error = response?.kind === 'error' ? response.error : undefined;
  const isOwn = response !== undefined && sentBackId(response.id) === id;
  const session = inSession ? judgeSession(refused, response, isOwn, method) : 'known';
  if (session === 'lost') return { kind: 'session-lost' };
  const isUnnamed = response?.id === 'null' && (status === 400 || (inSession && error?.code === RPC.methodNotFound));
  const isHandshake = method === 'initialize' || method === 'server/discover';
  // A server in trouble says nothing about the eras that it supports, unless it does not have the method.
  const isTrouble = isHandshake && status >= 500 && error !== undefined && error.code !== RPC.methodNotFound;
  let outcome: RefusalOutcome;
  if (isOwn && status !== 429 && !isTrouble) outcome = { kind: 'answer', response, isNamed: true };
  // A 400 to `initialize` may also come from a server of an older revision, which the caller has to find out.
  else if (isUnnamed && error !== undefined && id !== undefined && method !== 'initialize')
    outcome = { kind: 'answer', response: { kind: 'error', id: String(id), error }, isNamed: false };
  else outcome = { kind: 'failed', error: statusFailure(upstream, refused, error?.message) };
  if (session === 'known') return outcome;
  return { kind: 'session-doubted', mayHaveRun: !SESSION_REFUSALS.has(status), outcome };
}

/**
 * Returns the failure for a status.
 *
 * @param reason message of the JSON-RPC error in the body: the only part of the response that clients see.
 */
export function statusFailure(
  upstream: string,
  { status, retryAfterMs, missingScopes, hasChallenge, location }: ErrorResponse,
  reason?: string,
): GatewayError {
  const said = reason?.slice(0, MAX_MESSAGE_CHARS);
  const cause = new HttpStatusError(status, location, said);
  const failure = (code: ErrorCode, event: string, detail: ErrorDetail = {}) =>
    upstreamError(code, upstream, event, detail, cause);
  const data = retryAfterMs === undefined ? {} : { data: { retryAfterMs } };
  if (status === 403 && missingScopes !== undefined) {
    const which = missingScopes === '' ? 'further scopes' : `the scopes "${missingScopes}"`;
    const event = `needs ${which} for this request (HTTP 403), which our credentials lack; an operator has to add them`;
    return failure('upstream-unavailable', event, { executed: 'no', retryable: false });
  }
  if (status === 403 && hasChallenge !== true) {
    const event =
      'refused the request (HTTP 403): its credentials, or a rule of the server or a proxy, do not allow it';
    // Some servers pass on what the service behind a tool has answered.
    return failure('upstream-unavailable', event, { executed: 'unknown', retryable: false });
  }
  if (status === 401 || status === 403) {
    const event = `got no credentials that it accepts (HTTP ${status}); an operator has to configure them`;
    return failure('upstream-unavailable', event, { executed: 'no', retryable: false });
  }
  if (status === 429) {
    return failure('overloaded', 'takes no more requests for now (HTTP 429)', { executed: 'no', ...data });
  }
  if (status === 413) {
    return failure('too-large', 'refused the message as too large (HTTP 413)', { executed: 'no' });
  }
  if (status < 400) {
    const event = `answered with a redirect (HTTP ${status}), which is not followed; configure its final address`;
    return failure('upstream-protocol', event);
  }
  const executed: Executed = NOT_PROCESSED.has(status) ? 'no' : 'unknown';
  const because = said === undefined ? '' : `: ${said}`;
  const event = `answered HTTP ${status}${because}`;
  return failure('upstream-unavailable', event, { executed, retryable: false, ...data });
}

/** The reason why no connection could be opened, by error code; follows the name of the upstream in a sentence. */
const NO_CONNECTION: ReadonlyMap<string, string> = new Map([
  ['unsendable', 'has a header in its config that HTTP cannot carry; check for line breaks and special characters'],
  ['proxy', 'cannot be reached through the proxy of the gateway; check gateway.egress'],
  ['ECONNREFUSED', 'refused the connection; check that it is running'],
  ['ENOTFOUND', 'has a host name that does not exist'],
  ['EAI_AGAIN', 'has a host name that could not be looked up'],
  ['connect-timeout', 'did not accept a connection in time'],
  ['UND_ERR_CONNECT_TIMEOUT', 'did not accept a connection in time'],
  ['ETIMEDOUT', 'did not accept a connection in time'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'does not speak TLS at this port; is its URL http://?'],
  ['ERR_SSL_PACKET_LENGTH_TOO_LONG', 'does not speak TLS at this port; is its URL http://?'],
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

/**
 * Returns the failure for an error of the HTTP client.
 *
 * @param written whether a byte of the request may have been sent.
 */
export function wireFailure(upstream: string, thrown: unknown, written: boolean): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  const failure = (kind: ErrorCode, event: string) => upstreamError(kind, upstream, event, {}, thrown);
  const code = systemCode(thrown) ?? '';
  if (!written) {
    const why =
      NO_CONNECTION.get(code) ??
      (TLS.test(code) ? `could not be connected to securely (${code})` : 'could not be connected to');
    return upstreamError('upstream-unavailable', upstream, why, { executed: 'no' }, thrown);
  }
  if (thrown instanceof EventTooLargeError) {
    return failure('too-large', 'sent a message beyond the limit');
  }
  if (code === 'headers-timeout' || code === 'UND_ERR_HEADERS_TIMEOUT') {
    return failure('upstream-timeout', 'accepted the request and did not begin to answer in time');
  }
  const isInvalidHttp = thrown instanceof Error && thrown.name === 'HTTPParserError';
  if (isInvalidHttp || code === 'not-http' || code === 'UND_ERR_HEADERS_OVERFLOW') {
    return failure('upstream-protocol', 'answered with invalid HTTP');
  }
  return failure('upstream-lost', 'broke the connection before it answered');
}

/** The errors of a connection that did not answer any more. The system looks for that after a minute of silence. */
const UNANSWERED: ReadonlySet<string | undefined> = new Set(['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH']);

/** Returns whether an open connection was lost for a while before this failure: messages of its upstream have been lost, too. */
export function wasLostBefore({ cause }: GatewayError): boolean {
  return UNANSWERED.has(systemCode(cause));
}

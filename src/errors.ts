import type { Answer, RpcError } from './protocol/jsonrpc.ts';
import { RPC } from './protocol/rpc-codes.ts';

/** States whether the upstream ran the request. `no` is used only if it certainly did not. */
export type Executed = 'no' | 'unknown' | 'yes';

/** One failure as clients see it. */
interface Row {
  /** JSON-RPC code. Our own codes start at −31000, because the specification reserves −32768…−32000. */
  readonly rpc: number;
  /** HTTP status if the error is the whole HTTP response. */
  readonly http: number;
  readonly text: string;
  readonly executed?: Executed;
  readonly retryable?: boolean;
}

const NOT_RUN = { executed: 'no', retryable: true } as const;
const MAY_HAVE_RUN = { executed: 'unknown', retryable: false } as const;

/** Every failure that the gateway reports. `docs/errors.md` explains each row; a test keeps both in step. */
export const ERRORS = {
  'parse-error': { rpc: RPC.parseError, http: 400, text: 'Parse error' },
  'invalid-request': { rpc: RPC.invalidRequest, http: 400, text: 'Invalid request' },
  'method-not-found': { rpc: RPC.methodNotFound, http: 200, text: 'Method not found' },
  'invalid-params': { rpc: RPC.invalidParams, http: 200, text: 'Invalid params' },
  'unknown-tool': { rpc: RPC.invalidParams, http: 200, text: 'Unknown tool' },
  'unknown-prompt': { rpc: RPC.invalidParams, http: 200, text: 'Unknown prompt' },
  'unknown-resource': { rpc: RPC.resourceNotFound, http: 200, text: 'Resource not found' },
  'ambiguous-resource': { rpc: RPC.invalidParams, http: 200, text: 'More than one upstream has this resource' },
  'unknown-task': { rpc: RPC.invalidParams, http: 200, text: 'Unknown task' },
  'invalid-cursor': { rpc: RPC.invalidParams, http: 200, text: 'Invalid cursor' },
  'invalid-state': { rpc: RPC.invalidParams, http: 200, text: 'Invalid or expired requestState' },
  'header-mismatch': { rpc: RPC.headerMismatch, http: 400, text: 'Header mismatch' },
  'missing-capability': { rpc: RPC.missingCapability, http: 400, text: 'Missing required client capability' },
  'invalid-envelope': { rpc: RPC.invalidParams, http: 400, text: 'Invalid params' },
  'unsupported-revision': { rpc: RPC.unsupportedVersion, http: 400, text: 'Unsupported protocol version' },
  unauthorized: { rpc: -31001, http: 401, text: 'Unauthorized' },
  forbidden: { rpc: -31003, http: 403, text: 'Forbidden' },
  'not-found': { rpc: -31004, http: 404, text: 'Not found' },
  'method-not-allowed': { rpc: -31005, http: 405, text: 'Method not allowed' },
  'not-acceptable': { rpc: -31006, http: 406, text: 'Not acceptable' },
  'unsupported-media-type': { rpc: -31007, http: 415, text: 'Unsupported media type' },
  'body-too-large': { rpc: -31008, http: 413, text: 'Body too large' },
  'session-required': { rpc: RPC.invalidRequest, http: 400, text: 'Missing Mcp-Session-Id header' },
  'session-unknown': { rpc: RPC.sessionNotFound, http: 404, text: 'Session not found' },
  'unsupported-version': { rpc: RPC.invalidRequest, http: 400, text: 'Unsupported protocol version' },
  'upstream-unavailable': { rpc: -31010, http: 503, text: 'Upstream unavailable', ...NOT_RUN },
  'upstream-lost': { rpc: -31010, http: 502, text: 'Upstream connection lost', ...MAY_HAVE_RUN },
  'upstream-session-lost': { rpc: -31010, http: 503, text: 'Upstream session lost', ...NOT_RUN },
  'upstream-timeout': { rpc: -31011, http: 504, text: 'Upstream timed out', ...MAY_HAVE_RUN },
  'upstream-protocol': { rpc: -31012, http: 502, text: 'Upstream broke the protocol', ...MAY_HAVE_RUN },
  'too-many-requests': { rpc: -31021, http: 429, text: 'Too many requests', ...NOT_RUN },
  'auth-unavailable': { rpc: -31022, http: 503, text: 'Credentials cannot be checked now', ...NOT_RUN },
  overloaded: { rpc: -31013, http: 503, text: 'Overloaded', ...NOT_RUN },
  draining: { rpc: -31014, http: 503, text: 'Shutting down', ...NOT_RUN },
  'too-large': { rpc: -31015, http: 502, text: 'Message too large', ...MAY_HAVE_RUN },
  'outcome-unknown': { rpc: -31017, http: 502, text: 'Outcome unknown', ...MAY_HAVE_RUN },
  cancelled: { rpc: -31018, http: 499, text: 'Cancelled', ...MAY_HAVE_RUN },
  'client-unreachable': { rpc: -31019, http: 502, text: 'Client cannot be asked' },
  'client-timeout': { rpc: -31020, http: 504, text: 'Client did not answer' },
  'store-unavailable': { rpc: -31023, http: 503, text: 'Shared state unavailable', ...NOT_RUN },
  'audit-unavailable': { rpc: -31024, http: 503, text: 'Audit log unavailable', ...NOT_RUN },
  'access-unavailable': { rpc: -31028, http: 503, text: 'Access cannot be decided now', ...NOT_RUN },
  'rate-limited': { rpc: -31025, http: 200, text: 'Rate limit reached', ...NOT_RUN },
  // The status of an answer with a challenge, as HTTP clients of one request get it.
  'insufficient-scope': { rpc: -31029, http: 403, text: 'Insufficient scope', executed: 'no', retryable: false },
  'repeated-call': { rpc: -31026, http: 200, text: 'Call repeated too often', executed: 'no', retryable: false },
  'duplicate-call': { rpc: -31027, http: 200, text: 'Call under way', executed: 'unknown', retryable: true },
  'internal-error': { rpc: RPC.internalError, http: 500, text: 'Internal error' },
} as const satisfies Record<string, Row>;

export type ErrorCode = keyof typeof ERRORS;

export function isErrorCode(text: unknown): text is ErrorCode {
  return typeof text === 'string' && Object.hasOwn(ERRORS, text);
}

/** Returns whether an error has the form of {@link toRpcError}, as a gateway behind this one sends it. */
export function isGatewayForm({ code, data }: RpcError): boolean {
  if (typeof data !== 'object' || data === null || !('code' in data)) return false;
  return isErrorCode(data.code) && ERRORS[data.code].rpc === code;
}

export interface ErrorDetail {
  /** One sentence for the client: what happened and what to do. */
  readonly message?: string;
  /** The advice for the client, after the message. It is no part of the reason that operators see. */
  readonly advice?: string;
  readonly upstream?: string;
  readonly executed?: Executed;
  readonly retryable?: boolean;
  /** The scopes of a token with which the client may send the request again. */
  readonly scopes?: readonly string[];
  /** Further members of `error.data` for the client. */
  readonly data?: Readonly<Record<string, unknown>>;
}

/** The longest part of a detail in a message, because it may be a name that the client has sent. */
const DETAIL_CHARS = 1_000;

function shortened(text: string): string {
  return text.length <= DETAIL_CHARS ? text : `${text.slice(0, DETAIL_CHARS)}…`;
}

/** An expected failure: a row of {@link ERRORS} and details for the client. The cause goes to the log only. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ErrorCode;
  readonly detail: ErrorDetail;

  constructor(code: ErrorCode, detail: ErrorDetail = {}, cause?: unknown) {
    const { message, advice } = detail;
    const reason = message === undefined ? '' : `: ${shortened(message)}`;
    super(`${ERRORS[code].text}${reason}${advice === undefined ? '' : `; ${advice}`}`, { cause });
    this.code = code;
    this.detail = detail;
  }

  get row(): Row {
    return ERRORS[this.code];
  }

  /** Says whether the request ran; undefined for a failure that leaves this open. */
  get executed(): Executed | undefined {
    return this.detail.executed ?? this.row.executed;
  }
}

/** Returns an error about an upstream. @param event the sentence for clients, without the name of the upstream in front. */
export function upstreamError(
  code: ErrorCode,
  upstream: string,
  event: string,
  detail: ErrorDetail = {},
  cause?: unknown,
): GatewayError {
  return new GatewayError(code, { ...detail, upstream, message: `upstream "${upstream}" ${event}` }, cause);
}

/** A failure to start that the operator has to fix. The message says how; it is printed without a stack trace. */
export class StartError extends Error {
  override readonly name = 'StartError';
}

/** Returns the failure of a request that continues a call. The call may have run before, so that no failure says `executed: "no"`. */
export function failureOfRetry(error: GatewayError): GatewayError {
  const { code, detail, cause, executed } = error;
  return executed === 'no' ? new GatewayError(code, { ...detail, executed: 'unknown' }, cause) : error;
}

/** Returns the failure of a request whose call has begun, and cannot go on. Sent again, the request would begin another call. */
export function failureOfBegunCall(error: GatewayError): GatewayError {
  if (error.executed !== 'no') return error;
  const { code, detail, cause } = error;
  const advice = 'the call had begun, so check what it did before you make it again';
  return new GatewayError(code, { ...detail, advice, executed: 'unknown', retryable: false }, cause);
}

/**
 * Converts a thrown value to a {@link GatewayError}. Unexpected errors become `internal-error`, without details for the
 * client.
 */
export function toGatewayError(thrown: unknown): GatewayError {
  return thrown instanceof GatewayError ? thrown : new GatewayError('internal-error', {}, thrown);
}

/**
 * Returns the JSON-RPC error for a client: the row's code, the message, and `data` with `{ code, executed, retryable,
 * upstream, … }`.
 *
 * @param traceId the trace of the request; undefined if it is not traced.
 */
export function toRpcError(thrown: unknown, traceId?: string): RpcError {
  const { code, detail, message, row, executed } = toGatewayError(thrown);
  const data = {
    code,
    ...(detail.upstream === undefined ? {} : { upstream: detail.upstream }),
    ...(row.executed === undefined ? {} : { executed }),
    ...(row.retryable === undefined ? {} : { retryable: detail.retryable ?? row.retryable }),
    ...(traceId === undefined ? {} : { traceId }),
    ...(detail.scopes === undefined ? {} : { scopes: detail.scopes }),
    ...detail.data,
  };
  return { code: row.rpc, message, data };
}

/** Returns a thrown value as the answer to a request. @param traceId the trace of the request, if it is traced. */
export function toAnswer(thrown: unknown, traceId?: string): Answer {
  const error = toRpcError(thrown, traceId);
  const scopes = thrown instanceof GatewayError ? thrown.detail.scopes : undefined;
  return scopes === undefined ? { kind: 'error', error } : { kind: 'error', error, scopes };
}

/** Returns an answer, or the failure to make it as one. What it answers may have run. */
export function answerOf(make: () => Answer): Answer {
  try {
    return make();
  } catch (thrown) {
    return toAnswer(thrown instanceof GatewayError ? failureOfBegunCall(thrown) : thrown);
  }
}

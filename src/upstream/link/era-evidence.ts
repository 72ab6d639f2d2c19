import { memberOf } from '../../json/record.ts';
import type { GatewayError } from '../../errors.ts';
import type { RpcError } from '../../protocol/jsonrpc.ts';
import { isModernDate } from '../../protocol/revisions.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { NeedsAuthorizationError } from '../rpc/needs-authorization-error.ts';
import { NoEventStreamError } from '../rpc/no-event-stream-error.ts';
import { NoCredentialsError } from '../rpc/no-credentials-error.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';

/** Errors that only servers of the modern era send. */
const MODERN_ERRORS: ReadonlySet<number> = new Set([RPC.headerMismatch, RPC.missingCapability, RPC.unsupportedVersion]);

/** Returns the revisions in the data of a version error that the server supports. */
export function supportedBy(data: unknown): readonly unknown[] {
  const listed = memberOf(data, 'supported');
  return Array.isArray(listed) ? listed : [];
}

/** Returns whether an error proves support of the modern era. A version error that lists only older revisions does not. */
export function isModernError({ code, data }: RpcError): boolean {
  if (!MODERN_ERRORS.has(code)) return false;
  return code !== RPC.unsupportedVersion || supportedBy(data).some(isModernDate);
}

/** The words of servers that refuse a revision, with whichever code. */
export const ABOUT_REVISION = /protocol.?version|unsupported.{0,20}version/i;

const ABOUT_METHOD = /\bmethod\b|unsupported|not (?:supported|implemented)/i;

/**
 * Returns whether an error to a handshake says nothing about the era. It is internal, or has a code of the server's own, outside the range
 * that JSON-RPC reserves, and its text is about something else.
 */
export function isUnrelatedError({ code, message }: RpcError): boolean {
  const isReserved = code >= -32_768 && code <= -32_000;
  return (code === RPC.internalError || !isReserved) && !ABOUT_REVISION.test(message) && !ABOUT_METHOD.test(message);
}

/** Returns whether the server refused this kind of request with an HTTP status. */
export function isRefusedByStatus(error: GatewayError): boolean {
  return error.cause instanceof HttpStatusError && !isTransientFailure(error) && !lacksCredentials(error);
}

/** Returns what the server said with the status; empty if that was nothing. The message of the failure names the upstream, too. */
export function reasonOfStatus({ cause }: GatewayError): string {
  return cause instanceof HttpStatusError ? cause.reason : '';
}

/** Returns whether the configured URL is not that of the server. */
export function isRedirect({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && cause.status >= 300 && cause.status < 400;
}

/** Statuses with which a server refuses a method that it does not have. */
const NO_SUCH_METHOD: ReadonlySet<number> = new Set([404, 405, 501]);

export function isRefusedAsUnknown({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && NO_SUCH_METHOD.has(cause.status);
}

/** Returns whether the failure is transient, so that it says nothing about the era. */
export function isTransientFailure({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 408 || cause.status === 429 || cause.status >= 500);
}

/** Returns whether the server asks for credentials, which it does in either era, or the gateway has none for it. */
export function lacksCredentials({ cause }: GatewayError): boolean {
  if (cause instanceof NeedsAuthorizationError) return true;
  return cause instanceof HttpStatusError && (cause.status === 401 || cause.status === 403);
}

/** Returns whether credentials are the cause, also if the gateway could only not get them for now. The failure says nothing about the upstream. */
export function isOfCredentials(error: GatewayError): boolean {
  return error.cause instanceof NoCredentialsError || lacksCredentials(error);
}

/** Returns whether a request was refused for the credentials of the gateway. A 403 may be about that one request. */
export function isUnauthorized({ cause }: GatewayError): boolean {
  return cause instanceof NeedsAuthorizationError || (cause instanceof HttpStatusError && cause.status === 401);
}

/** Returns whether a status shows that the server serves others. A proxy sends 404 for a server that is gone, and 401 may be for any. */
export function isAnsweredByStatus({ cause }: GatewayError): boolean {
  if (!(cause instanceof HttpStatusError) || cause.status === 401 || cause.status === 404) return false;
  return cause.status >= 400 && cause.status < 500;
}

/** Returns whether a remote server may be down. A request was not sent or not answered, or a proxy may have answered it. */
export function mayBeDown(error: GatewayError): boolean {
  if (error.cause instanceof HttpStatusError) return error.cause.status >= 500;
  return (error.code === 'upstream-unavailable' || error.code === 'upstream-lost') && !isOfCredentials(error);
}

/** Statuses with which a server of 2024-11-05 answers an unexpected POST. */
const NOT_STREAMABLE: ReadonlySet<number> = new Set([400, 404, 405]);

/** Returns whether the failure of a stream of 2024-11-05 shows that the server has none, so that an earlier reason says more. */
export function hasNoStream(error: GatewayError): boolean {
  return isNotStreamable(error) || error.cause instanceof NoEventStreamError;
}

/** Returns whether the server may support HTTP+SSE of 2024-11-05 instead of Streamable HTTP. */
export function isNotStreamable({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && NOT_STREAMABLE.has(cause.status);
}

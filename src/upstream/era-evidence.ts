import type { GatewayError } from '../errors.ts';
import type { RpcError } from '../protocol/jsonrpc.ts';
import { MODERN } from '../protocol/revisions.ts';
import { HttpStatusError } from './rpc/http-status-error.ts';

export const UNSUPPORTED_VERSION = -32022;

/** Errors that only a server of the modern era knows: header mismatch, missing capability, unsupported version. */
const MODERN_ERRORS: ReadonlySet<number> = new Set([-32020, -32021, UNSUPPORTED_VERSION]);

/** The revisions that a version error says the server supports. */
export function supportedBy(data: unknown): readonly unknown[] {
  const listed: unknown = typeof data === 'object' && data !== null && 'supported' in data ? data.supported : [];
  return Array.isArray(listed) ? listed : [];
}

/** Whether an error proves that the server speaks the modern era. A version error that lists only older revisions does not. */
export function isModernError({ code, data }: RpcError): boolean {
  if (!MODERN_ERRORS.has(code)) return false;
  return code !== UNSUPPORTED_VERSION || supportedBy(data).some((version) => String(version) >= MODERN);
}

/** Statuses that report a passing condition or missing credentials, and nothing of what the server speaks. */
function isPassing(status: number): boolean {
  return status === 401 || status === 403 || status === 408 || status === 429 || status >= 500;
}

/** Whether the server refused the request for what it is, by an HTTP status alone. */
export function isRefusingStatus({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && !isPassing(cause.status);
}

/** Whether the server was in trouble, which says nothing of what it speaks. */
export function isInTrouble({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 408 || cause.status === 429 || cause.status >= 500);
}

/** Whether it asks for credentials, which it would do in any era. */
export function lacksCredentials({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 401 || cause.status === 403);
}

/** Statuses with which a server of 2024-11-05 answers a POST it does not expect. */
const NOT_STREAMABLE: ReadonlySet<number> = new Set([400, 404, 405]);

export function isNotStreamable({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && NOT_STREAMABLE.has(cause.status);
}

/**
 * The error codes of JSON-RPC 2.0 and of MCP. The codes of the gateway's own failures are in `src/errors.ts`.
 *
 * @see https://www.jsonrpc.org/specification#error_object
 */
export const RPC = {
  /** The text is not JSON. */
  parseError: -32700,
  /** The text is JSON, but not a message, or it exceeds a bound. */
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  /** The official SDKs, with HTTP 404. Some clients, such as Claude Code 2.1, open another session only at this code. */
  sessionNotFound: -32001,
  /** MCP to 2025-11-25. Since 2026-07-28 an unknown resource is `invalidParams`. */
  resourceNotFound: -32002,
  /** MCP 2025-11-25: the client must open a URL before it repeats the request. */
  urlElicitationRequired: -32042,
  /** MCP 2026-07-28: an HTTP header differs from the body. */
  headerMismatch: -32020,
  /** MCP 2026-07-28: the request needs a capability that the client did not declare. */
  missingCapability: -32021,
  /** MCP 2026-07-28: the server does not support the revision of the request. */
  unsupportedVersion: -32022,
} as const;

/** Returns whether 2026-07-28 keeps a code for itself. It defines three of them, and allows no use of the others. */
export function isReservedCode(code: number): boolean {
  return code <= -32020 && code >= -32099;
}

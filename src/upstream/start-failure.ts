import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { type GatewayError, toGatewayError, upstreamError } from '../errors.ts';
import { systemCode } from '../thrown.ts';
import { EVERYBODY } from './connection-key.ts';
import { endpointHint } from './http/endpoint-hint.ts';
import type { FailureScope } from './lifecycle/lifecycle.ts';
import { isOfCredentials, lacksCredentials } from './link/era-evidence.ts';
import { StartTimeoutError } from './link/start-timeout.ts';
import { ProgramError } from './stdio/spawn-failure.ts';

export interface StartFailure {
  readonly reason: string;
  /** More about the reason, for operators. */
  readonly detail: string | undefined;
  readonly scope: FailureScope;
  /** True if it took longer than `timeouts.start`. */
  readonly isLate: boolean;
  /** True if the program could not be started, so that no process has run. */
  readonly isUnstarted: boolean;
  /** True if the credentials of the gateway are the cause. */
  readonly lacksCredentials: boolean;
  readonly cause: GatewayError;
  /** The error for the client that waits. */
  readonly error: GatewayError;
}

/** Explains the failure of a start. @param audience of the connection; credentials of one principal say nothing about others. */
export function startFailure(
  { id, target }: Pick<UpstreamConfig, 'id' | 'target'>,
  audience: string,
  thrown: unknown,
): StartFailure {
  const cause = toGatewayError(thrown);
  const reason = reasonOf(cause);
  const hint = target.kind === 'stdio' ? undefined : endpointHint(target, cause);
  const isOfCredential = lacksCredentials(cause);
  // A client that tries again would do so until an operator has acted.
  const { retryable } = isOfCredential ? cause.detail : {};
  const advice = retryable === undefined ? {} : { retryable };
  const error = upstreamError('upstream-unavailable', id, `did not start: ${reason}`, advice, cause);
  const scope = audience !== EVERYBODY && isOfCredentials(cause) ? 'connection' : 'upstream';
  const isLate = cause.cause instanceof StartTimeoutError;
  const isUnstarted = cause.cause instanceof ProgramError;
  const detail = hint ?? detailOf(cause);
  return { reason, detail, scope, isLate, isUnstarted, lacksCredentials: isOfCredential, cause, error };
}

/** Returns the error for a listing of an upstream that was removed or replaced meanwhile. */
export function retiredError(id: string): GatewayError {
  return upstreamError('upstream-unavailable', id, 'was removed or replaced');
}

/** Returns the part of an error that clients may read. */
export function reasonOf(error: GatewayError): string {
  return error.detail.message ?? error.message;
}

/** Codes of a certificate whose authority is not known. */
const UNTRUSTED = /^(?:DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY))/;

/** Returns the part of an error that only operators may read. */
export function detailOf({ cause }: GatewayError): string | undefined {
  const code = systemCode(cause) ?? '';
  // The message is advice for those who start Node themselves.
  if (UNTRUSTED.test(code)) return 'no known authority has signed its certificate; set tls.ca of this server';
  // The reason has the code of a TLS error, whose message is for programmers of OpenSSL.
  const isCode = code.startsWith('ERR_SSL_');
  return cause instanceof Error && !isCode ? cause.message : undefined;
}

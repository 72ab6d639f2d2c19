import type { GatewayError } from '../errors.ts';

/** What a client may read. */
export function reasonOf(error: GatewayError): string {
  return error.detail.message ?? error.message;
}

/** What an operator may read besides. */
export function detailOf({ cause }: GatewayError): string | undefined {
  return cause instanceof Error ? cause.message : undefined;
}

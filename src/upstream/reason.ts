import type { GatewayError } from '../errors.ts';

/** Returns the part of an error that clients may read. */
export function reasonOf(error: GatewayError): string {
  return error.detail.message ?? error.message;
}

/** Returns the part of an error that only operators may read. */
export function detailOf({ cause }: GatewayError): string | undefined {
  return cause instanceof Error ? cause.message : undefined;
}

import type { LimitName } from '../limits.ts';

export type WireFault =
  | 'connect-timeout'
  | 'headers-timeout'
  | 'body-timeout'
  /** The other side closed the connection before the response had ended. */
  | 'closed'
  /** The response is not HTTP/1.1, or is ambiguous. */
  | 'not-http'
  /** The request has characters that a request head cannot carry. */
  | 'unsendable'
  | 'destroyed'
  /** The proxy opened no tunnel. */
  | 'proxy';

/** A failure of a request over plain HTTP/1.1 for which the operating system has no error. */
export class WireError extends Error {
  override readonly name = 'WireError';
  readonly code: WireFault;
  /** The bound that the response exceeds; undefined for other failures. */
  readonly limit: LimitName | undefined;

  constructor(code: WireFault, message: string, limit?: LimitName) {
    super(message);
    this.code = code;
    this.limit = limit;
  }
}

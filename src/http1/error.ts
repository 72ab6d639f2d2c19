export type WireFault =
  | 'connect-timeout'
  | 'headers-timeout'
  | 'body-timeout'
  /** The other side closed the connection before the response had ended. */
  | 'closed'
  /** What came is not HTTP/1.1, or could be read in two ways. */
  | 'not-http'
  /** The request holds characters that a head cannot carry. */
  | 'unsendable'
  | 'destroyed';

/** Why a request on a plain connection failed, where the system has no error of its own. */
export class WireError extends Error {
  override readonly name = 'WireError';
  readonly code: WireFault;

  constructor(code: WireFault, message: string) {
    super(message);
    this.code = code;
  }
}

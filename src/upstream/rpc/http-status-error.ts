/** The cause of a `GatewayError` if an upstream answered with an HTTP status other than 2xx. */
export class HttpStatusError extends Error {
  override readonly name = 'HttpStatusError';
  readonly status: number;

  constructor(status: number) {
    super(`HTTP ${status}`);
    this.status = status;
  }
}

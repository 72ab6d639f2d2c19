/** The cause of a `GatewayError` if an upstream answered with an HTTP status other than 2xx. */
export class HttpStatusError extends Error {
  override readonly name = 'HttpStatusError';
  readonly status: number;
  /** Private, because logs write the members of an error, and a URL may hold secrets. */
  readonly #location: string | undefined;

  constructor(status: number, location?: string) {
    super(`HTTP ${status}`);
    this.status = status;
    this.#location = location;
  }

  /** The `Location` of a redirect. */
  get location(): string | undefined {
    return this.#location;
  }
}

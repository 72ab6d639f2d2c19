/** The cause of a `GatewayError` if an upstream answered with an HTTP status other than 2xx. */
export class HttpStatusError extends Error {
  override readonly name = 'HttpStatusError';
  readonly status: number;
  /** Private, because logs write the members of an error, and a URL may hold secrets. */
  readonly #location: string | undefined;
  /** Private, because the message of the failure has it already. */
  readonly #reason: string;

  constructor(status: number, location?: string, reason = '') {
    super(`HTTP ${status}`);
    this.status = status;
    this.#location = location;
    this.#reason = reason;
  }

  /** The `Location` of a redirect. */
  get location(): string | undefined {
    return this.#location;
  }

  /** The message of the JSON-RPC error in the body, cut; empty without one. */
  get reason(): string {
    return this.#reason;
  }
}

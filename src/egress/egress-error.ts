/** A request of the gateway that was not sent, or whose response is not used. The message is for operators, without secrets. */
export class EgressError extends Error {
  override readonly name = 'EgressError';
  /** The status of the response that is not used, if there was one. */
  readonly status: number | undefined;

  constructor(message: string, { status, ...options }: ErrorOptions & { readonly status?: number } = {}) {
    super(message, options);
    this.status = status;
  }
}

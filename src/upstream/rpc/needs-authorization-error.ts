/**
 * The cause of a `GatewayError` if the gateway has no credentials for an upstream, and an operator or user has to act. The message is for
 * operators.
 */
export class NeedsAuthorizationError extends Error {
  override readonly name = 'NeedsAuthorizationError';
  /** The one who has to act. */
  readonly actor: 'operator' | 'caller';

  constructor(message: string, { actor = 'operator', ...options }: NeedsAuthorizationOptions = {}) {
    super(message, options);
    this.actor = actor;
  }
}

interface NeedsAuthorizationOptions extends ErrorOptions {
  /** Default: an operator. */
  readonly actor?: 'operator' | 'caller';
}

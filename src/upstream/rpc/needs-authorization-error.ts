/**
 * The cause of a `GatewayError` if the gateway has no credentials for an upstream, and an operator or user has to act. The message is for
 * operators.
 */
export class NeedsAuthorizationError extends Error {
  override readonly name = 'NeedsAuthorizationError';
  /** The one who has to act. */
  readonly actor: 'operator' | 'caller';
  /** True if the scopes are refused, so that others may be given out. */
  readonly isOfScopes: boolean;

  constructor(message: string, { actor = 'operator', isOfScopes = false, ...options }: NeedsAuthorizationOptions = {}) {
    super(message, options);
    this.actor = actor;
    this.isOfScopes = isOfScopes;
  }
}

interface NeedsAuthorizationOptions extends ErrorOptions {
  /** Default: an operator. */
  readonly actor?: 'operator' | 'caller';
  /** Default: false. */
  readonly isOfScopes?: boolean;
}

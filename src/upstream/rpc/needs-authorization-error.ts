/** The one who has to act; nobody if credentials will be there without that. */
export type Actor = 'operator' | 'caller' | 'nobody';

/**
 * The cause of a `GatewayError` if the gateway has no credentials for an upstream and only time or a person can change that. The message is for
 * operators.
 */
export class NeedsAuthorizationError extends Error {
  override readonly name = 'NeedsAuthorizationError';
  readonly actor: Actor;
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
  readonly actor?: Actor;
  readonly isOfScopes?: boolean;
}

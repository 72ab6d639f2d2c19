/**
 * The cause of a `GatewayError` if the gateway has no credentials for an upstream, and an operator or user has to act. The message is for
 * operators.
 */
export class NeedsAuthorizationError extends Error {
  override readonly name = 'NeedsAuthorizationError';
}

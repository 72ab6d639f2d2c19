/**
 * The cause of a `GatewayError` if the gateway could not get credentials for an upstream for now, so that the upstream was not asked. The
 * message is for operators.
 */
export class NoCredentialsError extends Error {
  override readonly name = 'NoCredentialsError';
}

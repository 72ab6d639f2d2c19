/** The cause of a `GatewayError` if an upstream answered a GET with something else than an event stream. */
export class NoEventStreamError extends Error {
  override readonly name = 'NoEventStreamError';
}

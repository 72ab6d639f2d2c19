/** A request of the gateway that was not sent, or whose response is not used. The message is for operators, without secrets. */
export class EgressError extends Error {
  override readonly name = 'EgressError';
}

import { systemCode } from '../thrown.ts';
import { stdSerializers } from 'pino';
import { GatewayError, StartError } from '../errors.ts';
import { shownText } from '../peer-text.ts';

/** The largest number of causes of an error that are logged. */
const MAX_CAUSES = 8;

/** Error codes of Node and undici for failures outside the program: `ECONNREFUSED`, `UND_ERR_SOCKET`. */
const OUTSIDE = /^(?:E[A-Z0-9]+|UND_ERR_[A-Z_]+)$/;

/** Returns whether the message of an error is enough, so that its stack is not logged. */
export function isExpected(error: unknown): boolean {
  if (error instanceof GatewayError) return error.code !== 'internal-error';
  if (error instanceof StartError) return true;
  return OUTSIDE.test(systemCode(error) ?? '');
}

/**
 * Returns an error in the form of a log line. An expected failure has its message and those of its causes. Any other
 * error has its stack too, and so has every error if `withStacks` is set.
 */
export function loggedError(error: unknown, withStacks: boolean): unknown {
  if (!(error instanceof Error) || withStacks || !isExpected(error)) {
    return error instanceof Error ? stdSerializers.errWithCause(error) : error;
  }
  const causes: string[] = [];
  let { cause } = error;
  while (cause instanceof Error && causes.length < MAX_CAUSES) {
    if (!isExpected(cause) && isDefect(cause)) return stdSerializers.errWithCause(error);
    causes.push(cause.message);
    ({ cause } = cause);
  }
  const further = causes.length === 0 ? {} : { causes };
  if (error instanceof GatewayError) {
    // The message has most of the detail, and text of the client.
    const { code, detail, message } = error;
    const { upstream, executed, retryable } = detail;
    return {
      type: error.name,
      code,
      message: shownText(message),
      detail: { upstream, executed, retryable },
      ...further,
    };
  }
  const code = systemCode(error);
  return { type: error.name, ...(code === undefined ? {} : { code }), message: error.message, ...further };
}

/** Returns whether the error is a bug in the gateway. As the cause of an expected failure, it keeps its stack. */
function isDefect(error: Error): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError;
}

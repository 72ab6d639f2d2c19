import { JsonTextError } from './json-text-error.ts';

/** Returns whether an error of reading JSON means that the text is malformed, and not that our code has a bug. */
export function isMalformed(thrown: unknown): thrown is JsonTextError | SyntaxError {
  return thrown instanceof JsonTextError || thrown instanceof SyntaxError;
}

/** Returns what is read from a JSON text, or something else if the text is malformed. */
export function unlessMalformed<Value, Otherwise>(read: () => Value, otherwise: Otherwise): Value | Otherwise {
  try {
    return read();
  } catch (thrown) {
    if (isMalformed(thrown)) return otherwise;
    throw thrown;
  }
}

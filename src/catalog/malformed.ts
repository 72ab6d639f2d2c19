import { JsonTextError } from '../json/json.ts';

/** Returns whether an error of reading JSON means that the text is malformed, and not that our code has a bug. */
export function isMalformed(thrown: unknown): thrown is JsonTextError | SyntaxError {
  return thrown instanceof JsonTextError || thrown instanceof SyntaxError;
}

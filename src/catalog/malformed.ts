import { JsonTextError } from '../json/json.ts';

/** Whether something thrown while reading JSON means that the text was bad, rather than that we are. */
export function isMalformed(thrown: unknown): thrown is JsonTextError | SyntaxError {
  return thrown instanceof JsonTextError || thrown instanceof SyntaxError;
}

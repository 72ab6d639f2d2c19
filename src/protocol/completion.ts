import { arrayText, isArrayText, RawObject, rawItems } from '../json/json.ts';

/** The most values of a completion in all revisions. The clients of the TypeScript SDKs refuse a result with more. */
const MAX_VALUES = 100;

/**
 * Returns the result of `completion/complete` with the first values, and with the members that tell of the others. Returns the same text if
 * there are not too many.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function boundedCompletion(text: string): string {
  const result = RawObject.parse(text);
  const completion = result.object('completion');
  const values = completion?.raw('values');
  if (completion === undefined || !isArrayText(values)) return text;
  const first = rawItems(values, MAX_VALUES);
  if (first.length <= MAX_VALUES) return text;
  const bounded = completion
    .with('values', arrayText(first.slice(0, MAX_VALUES)))
    .with('total', completion.raw('total') ?? String(rawItems(values).length))
    .with('hasMore', 'true');
  return result.with('completion', bounded.toString()).toString();
}

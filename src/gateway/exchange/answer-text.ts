import { z } from 'zod';
import { type Answer, errorTextOf, keepErrorText } from '../../protocol/jsonrpc.ts';

/** Marks an error as one of an upstream. A member of the error, since earlier versions refuse unknown members beside it. */
const MARK = 'io.linkspan/isUpstreams';
/** The text of an error that would read differently if it were written again. A member of the error too. */
const TEXT = 'io.linkspan/text';

const ANSWER = z.union([
  z.strictObject({ result: z.string() }),
  z.strictObject({
    error: z.looseObject({ code: z.number(), message: z.string(), data: z.unknown().optional() }),
    scopes: z.array(z.string()).exactOptional(),
  }),
]);

/** An answer as it was written. */
export interface ReadAnswer {
  readonly answer: Answer;
  /** True for an error of an upstream, whose data may look like that of the gateway. */
  readonly isUpstreams: boolean;
}

/** Returns an answer as a text for other processes and versions. @param isUpstreams see {@link ReadAnswer}. Default: false. */
export function answerText(answer: Answer, isUpstreams = false): string {
  if (answer.kind === 'result') return JSON.stringify({ result: answer.result });
  const { kind: _kind, error, ...rest } = answer;
  // An upstream may have written such a member, and one that is undefined is not written.
  const text = { [TEXT]: errorTextOf(error) };
  return JSON.stringify({ ...rest, error: { ...error, ...text, ...(isUpstreams ? { [MARK]: true } : {}) } });
}

/** Returns the answer of a text that is parsed as JSON. Returns undefined if a later version has written it. */
export function readAnswer(parsed: unknown): ReadAnswer | undefined {
  const { data } = ANSWER.safeParse(parsed);
  if (data === undefined) return undefined;
  if ('result' in data) return { answer: { kind: 'result', result: data.result }, isUpstreams: false };
  const { error: marked, ...rest } = data;
  const { [MARK]: mark, [TEXT]: text, ...error } = marked;
  if (typeof text === 'string') keepErrorText(error, text);
  return { answer: { kind: 'error', ...rest, error }, isUpstreams: mark === true };
}

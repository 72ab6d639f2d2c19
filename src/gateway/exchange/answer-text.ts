import { z } from 'zod';
import type { Answer } from '../../protocol/jsonrpc.ts';

/** Marks an error as one of an upstream. A member of the error, since earlier versions refuse unknown members beside it. */
const MARK = 'io.linkspan/isUpstreams';

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
  return JSON.stringify({ ...rest, error: isUpstreams ? { ...error, [MARK]: true } : error });
}

/** Returns the answer of a text that is parsed as JSON. Returns undefined if a later version has written it. */
export function readAnswer(parsed: unknown): ReadAnswer | undefined {
  const { data } = ANSWER.safeParse(parsed);
  if (data === undefined) return undefined;
  if ('result' in data) return { answer: { kind: 'result', result: data.result }, isUpstreams: false };
  const { error: marked, ...rest } = data;
  const { [MARK]: mark, ...error } = marked;
  return { answer: { kind: 'error', ...rest, error }, isUpstreams: mark === true };
}

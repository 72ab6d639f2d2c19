import { z } from 'zod';
import type { Answer } from '../../protocol/jsonrpc.ts';

const ANSWER = z.union([
  z.strictObject({ result: z.string() }),
  z.strictObject({
    error: z.object({ code: z.number(), message: z.string(), data: z.unknown().optional() }),
    scopes: z.array(z.string()).exactOptional(),
  }),
]);

/** Returns an answer as a text for other processes and versions. */
export function answerText(answer: Answer): string {
  if (answer.kind === 'result') return JSON.stringify({ result: answer.result });
  const { kind: _kind, ...error } = answer;
  return JSON.stringify(error);
}

/** Returns the answer of a text. Returns undefined if a later version has written it. */
export function parseAnswerText(text: string): Answer | undefined {
  return readAnswer(JSON.parse(text));
}

/** Like {@link parseAnswerText}, for the parsed text. */
export function readAnswer(parsed: unknown): Answer | undefined {
  const { data } = ANSWER.safeParse(parsed);
  if (data === undefined) return undefined;
  return 'result' in data ? { kind: 'result', result: data.result } : { kind: 'error', ...data };
}

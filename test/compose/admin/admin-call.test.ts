import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callAsOperator } from '../../../src/compose/admin/admin-call.ts';
import type { Front } from '../../../src/gateway/front/front.ts';

/** Returns the answer to a call of a tool with this result. */
async function answerOf(result: string) {
  const front: Pick<Front, 'handleModernRequest'> = {
    handleModernRequest: (_request, _caller, sink) => {
      sink.answer({ kind: 'result', result });
      return { cancel: () => undefined, close: () => undefined };
    },
  };
  return await callAsOperator(front, 'ops', { tool: 't', arguments: {}, view: '' }, new AbortController().signal);
}

test('a result with a long integer has its exact text too', async () => {
  const long = '{"structuredContent":{"id":12345678901234567890}}';
  assert.equal((await answerOf(long)).resultText, long);
  const short = await answerOf('{"structuredContent":{"id":1}}');
  assert.deepEqual(
    [short.outcome, short.result, short.resultText],
    ['result', { structuredContent: { id: 1 } }, undefined],
  );
});

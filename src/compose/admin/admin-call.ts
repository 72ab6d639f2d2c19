import { addAbortListener } from 'node:events';
import { z } from 'zod';
import type { Front, ModernCaller } from '../../gateway/front/front.ts';
import { changedNumber } from '../../json/changed-number.ts';
import { RawObject } from '../../json/json.ts';
import type { OperatorCall } from '../../operator/admin/admin-port.ts';
import type { ToolCallAnswer } from '../../operator/admin/answers.ts';
import { operatorPrincipal } from '../../policy/principal.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { LATEST_MODERN } from '../../protocol/revisions.ts';
import { VERSION } from '../../version.ts';

const MS = 1_000;

/**
 * Calls a tool as an operator, who can answer no questions of the tool. Never rejects: every failure is an answer.
 *
 * @param signal cancels the call.
 */
export async function callAsOperator(
  front: Pick<Front, 'handleModernRequest'>,
  operator: string,
  { tool, arguments: args, view }: OperatorCall,
  signal: AbortSignal,
): Promise<ToolCallAnswer> {
  const principal = operatorPrincipal(operator);
  const receivedMs = performance.now();
  const caller: ModernCaller = {
    principal,
    view,
    revision: LATEST_MODERN,
    capabilities: RawObject.EMPTY,
    logLevel: undefined,
    clientInfo: CLIENT_INFO,
  };
  // A list waits for upstreams that were never listed; a call would fail while they start.
  await send(front, caller, 'tools/list', RawObject.EMPTY, signal);
  const answer = await send(front, caller, 'tools/call', RawObject.of({ name: tool, arguments: args }), signal);
  return { as: principal.label, ...outcomeOf(answer), seconds: (performance.now() - receivedMs) / MS };
}

const CLIENT_INFO = RawObject.of({ name: 'linkspan call', version: VERSION });

/** Sends one request, and resolves with its answer. @param signal cancels it. */
async function send(
  front: Pick<Front, 'handleModernRequest'>,
  caller: ModernCaller,
  method: string,
  params: RawObject,
  signal: AbortSignal,
): Promise<Answer> {
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const sink = { receivedMs: performance.now(), send: () => false, answer: resolve };
  const call = front.handleModernRequest({ kind: 'request', id: '1', method, params }, caller, sink, undefined);
  using _leaving = addAbortListener(signal, () => call.cancel('the operator has gone'));
  return await promise;
}

function outcomeOf(answer: Answer): Omit<ToolCallAnswer, 'as' | 'seconds'> {
  if (answer.kind === 'error') {
    const { code, message, data } = answer.error;
    const shown = data === undefined ? {} : { data: z.json().parse(data) };
    return { outcome: 'error', error: { code, message, ...shown } };
  }
  const raw = RawObject.parse(answer.result);
  if (raw.string('resultType') === 'input_required') {
    const message = 'The tool asks its user a question, which only an MCP client can answer. Call it from one.';
    return { outcome: 'input-required', error: { code: 0, message } };
  }
  const result = z.json().parse(JSON.parse(answer.result));
  const exact = changedNumber(answer.result) === undefined ? {} : { resultText: answer.result };
  return { outcome: raw.raw('isError') === 'true' ? 'tool-error' : 'result', result, ...exact };
}

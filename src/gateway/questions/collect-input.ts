import { setTimeout as sleep } from 'node:timers/promises';
import type { QuestionPolicy } from './question-policy.ts';
import { GatewayError } from '../../errors.ts';
import { upgradeInputResponse } from '../../protocol/translation/input-response.ts';
import type { InputRequest, InputRequired, Retry } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { canBeAsked } from '../exchange/client-capabilities.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { OpenedPages } from './opened-pages.ts';

/**
 * Asks a legacy client the questions of one input round of a modern upstream, all at once, on the stream of the
 * client's request. The client's request stays open over all rounds. Takes a pause if there is nothing to ask.
 *
 * @param opened the pages that the client has accepted before, for which it is not asked again.
 * @returns the answers for the retry at the upstream.
 * @throws {GatewayError} `client-unreachable` if the client cannot or does not answer; `cancelled`
 */
export async function collectInput(
  policy: QuestionPolicy,
  exchange: OpenExchange,
  upstream: string,
  asked: InputRequired,
  opened: OpenedPages,
): Promise<Retry> {
  const { inputRequests, requestState } = asked;
  policy.assertAllowed(upstream, inputRequests);
  const questions = inputRequests
    .filter((request) => !opened.has(request))
    .map((request) => prepareQuestion(policy, exchange, upstream, request));
  policy.assertTokens(exchange.client, upstream, questions);
  exchange.releaseSlot();
  if (questions.length === 0) await exchange.unlessCancelled(sleep(opened.nextPauseMs()));
  if (inputRequests.length === 0) return { inputResponses: undefined, requestState };
  const withdrawals: (() => void)[] = [];
  try {
    const answers = questions.map(async ({ key, method, params }) => {
      const { promise, resolve } = Promise.withResolvers<Answer>();
      const onWithdrawn = (run: () => void) => withdrawals.push(run);
      exchange.client.ask({ upstream, method, params, answer: resolve, onProgress: undefined, onWithdrawn }, exchange);
      const response = inputResponseOf(upstream, method, await promise);
      opened.onAnswer(params, response);
      return [key, response] as const;
    });
    let inputResponses = RawObject.EMPTY;
    for (const { key } of inputRequests.filter((request) => opened.has(request))) {
      inputResponses = inputResponses.with(key, '{"action":"accept"}');
    }
    for (const [key, raw] of await exchange.unlessCancelled(Promise.all(answers))) {
      inputResponses = inputResponses.with(key, raw);
    }
    return { inputResponses, requestState };
  } finally {
    for (const withdraw of withdrawals) withdraw();
  }
}

interface Question {
  readonly key: string;
  readonly method: string;
  readonly params: RawObject;
}

/** @throws {GatewayError} `client-unreachable` */
function prepareQuestion(
  policy: QuestionPolicy,
  { client, view }: OpenExchange,
  upstream: string,
  request: InputRequest,
): Question {
  const { key, method, params } = request;
  const toClient = policy.toClient(client, upstream, request, view);
  const elicitationId = `${upstream}:${crypto.randomUUID()}`;
  const asked = client.dialect.downgradeInputRequest(method, toClient, elicitationId);
  if (asked === undefined || !canBeAsked(client.clientCapabilities, method, params ?? RawObject.EMPTY)) {
    const message = `upstream "${upstream}" needs ${method} of the client, which cannot be asked for it`;
    throw new GatewayError('client-unreachable', { upstream, message });
  }
  return { key, method, params: asked };
}

/**
 * Returns the input response of a client's answer. An error counts as a cancelled elicitation; for other questions it
 * ends the call, since an input response cannot be an error.
 */
function inputResponseOf(upstream: string, method: string, answer: Answer): string {
  if (answer.kind === 'result') return upgradeInputResponse(answer.result);
  if (method === 'elicitation/create') return '{"action":"cancel"}';
  const message = `the client refused ${method}, which upstream "${upstream}" needs: ${answer.error.message}`;
  throw new GatewayError('client-unreachable', { upstream, message });
}

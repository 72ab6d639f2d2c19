import { setTimeout as sleep } from 'node:timers/promises';
import type { QuestionPolicy } from './question-policy.ts';
import { GatewayError } from '../../errors.ts';
import { upgradeInputResponse } from '../../protocol/input-response.ts';
import type { InputRequest, InputRequired, Retry } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { downgradeInputRequest } from '../../protocol/downgrade-modern.ts';
import { MODERN } from '../../protocol/revisions.ts';
import { canBeAsked } from '../exchange/client-capabilities.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';

/** More often than this a server does not ask about one call. */
export const MAX_ROUNDS = 8;

/** A server that wants to be asked again without saying what for is given this long. */
const PACE_MS = 250;

/**
 * A legacy client waits in one request while a modern upstream is asked again and again, each time with what the client said
 * meanwhile. This is one such round: everything the upstream wants to know, at once, on the stream of the client's request.
 *
 * @returns what to bring back to the upstream.
 * @throws {GatewayError} `client-unreachable` when the client cannot or will not say; `cancelled`
 */
export async function collectInput(
  policy: QuestionPolicy,
  exchange: OpenExchange,
  upstream: string,
  asked: InputRequired,
): Promise<Retry> {
  const { inputRequests, requestState } = asked;
  if (inputRequests.length === 0) {
    await exchange.unlessCancelled(sleep(PACE_MS));
    return { inputResponses: undefined, requestState };
  }
  policy.mustAllow(upstream, inputRequests);
  const questions = inputRequests.map((request) => question(policy, exchange, upstream, request));
  exchange.releaseSlot();
  const withdrawals: (() => void)[] = [];
  try {
    const answers = questions.map(async ({ key, method, params }) => {
      const { promise, resolve } = Promise.withResolvers<Answer>();
      const onWithdrawn = (run: () => void) => withdrawals.push(run);
      exchange.client.ask({ upstream, method, params, answer: resolve, onProgress: undefined, onWithdrawn }, exchange);
      return [key, responseTo(upstream, method, await promise)] as const;
    });
    let inputResponses = RawObject.EMPTY;
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
function question(policy: QuestionPolicy, { client }: OpenExchange, upstream: string, request: InputRequest): Question {
  const { key, method, params } = request;
  const { revision } = client.caller;
  const toClient = policy.toClient(client, upstream, request);
  const elicitationId = `${upstream}:${crypto.randomUUID()}`;
  const asked = revision === MODERN ? toClient : downgradeInputRequest(method, revision, toClient, elicitationId);
  if (asked === undefined || !canBeAsked(client.clientCapabilities, method, params ?? RawObject.EMPTY)) {
    const message = `upstream "${upstream}" needs ${method} of the client, which cannot be asked for it`;
    throw new GatewayError('client-unreachable', { upstream, message });
  }
  return { key, method, params: asked };
}

/** An error has no place among the answers: to a form or a page it is a cancel, and else there is no going on. */
function responseTo(upstream: string, method: string, answer: Answer): string {
  if (answer.kind === 'result') return upgradeInputResponse(answer.result);
  if (method === 'elicitation/create') return '{"action":"cancel"}';
  const message = `the client refused ${method}, which upstream "${upstream}" needs: ${answer.error.message}`;
  throw new GatewayError('client-unreachable', { upstream, message });
}

import { memberOf } from '../../json/record.ts';
import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { type InputRequired, mayRequireInput, readResult } from '../../protocol/input-required.ts';
import type { Answer, parsed, RpcError } from '../../protocol/jsonrpc.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { assertComplete } from '../forward/result-translator.ts';

/** A URL that the user must open before a legacy upstream makes the call. */
export interface UrlElicitation {
  readonly elicitationId: string;
  readonly url: string;
  readonly message: string;
}

/** The end of a call: an answer, or the input that a modern client must provide in a retry. */
export type CallOutcome =
  | Answer
  | { readonly kind: 'input-required'; readonly inputRequired: InputRequired }
  | { readonly kind: 'urls-required'; readonly elicitations: readonly UrlElicitation[] };

export type ParsedAnswer = ReturnType<typeof parsed> | Extract<Answer, { kind: 'error' }>;

export function isAnswer(outcome: CallOutcome): outcome is Answer {
  return outcome.kind === 'result' || outcome.kind === 'error';
}

/**
 * Returns the outcome with the URLs in an error of a legacy upstream, for a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`
 */
export function urlsRequired(upstream: string, exchange: Exchange, { message, data }: RpcError): CallOutcome {
  const { client, request } = exchange;
  const listed = memberOf(data, 'elicitations');
  const elicitations = (Array.isArray(listed) ? listed : []).flatMap((one: unknown) =>
    isUrlElicitation(one) ? [one] : [],
  );
  if (elicitations.length === 0 || !mayRequireInput(request.method)) {
    const why = elicitations.length === 0 ? 'names none' : `${request.method} cannot wait for that`;
    throw new GatewayError('upstream-protocol', {
      upstream,
      executed: 'no',
      message: `upstream "${upstream}" wants URLs opened, and ${why}: ${message}`,
    });
  }
  if (client.clientCapabilities.object('elicitation')?.raw('url') === undefined) {
    const requiredCapabilities = { elicitation: { url: {} } };
    throw new GatewayError('missing-capability', { upstream, executed: 'no', message, data: { requiredCapabilities } });
  }
  return { kind: 'urls-required', elicitations };
}

function isUrlElicitation(one: unknown): one is UrlElicitation {
  return ['elicitationId', 'url', 'message'].every((key) => typeof memberOf(one, key) === 'string');
}

/** A result of a modern upstream that does not complete the call: questions, or the state of a new task. */
type IncompleteResult =
  | { readonly kind: 'input-required'; readonly asked: InputRequired }
  | { readonly kind: 'task'; readonly state: RawObject };

/**
 * Returns the questions or the task in a result of a modern upstream; undefined for a complete result.
 *
 * @throws {GatewayError} `upstream-protocol`: the request allows no such result.
 */
export function readIncomplete(
  upstream: string,
  { request: { method }, client }: Exchange,
  result: RawObject,
): IncompleteResult | undefined {
  const reading = readResult(result);
  if (reading.kind === 'input-required' && mayRequireInput(method)) return reading;
  const mayCreateTask = method === 'tools/call' && client.dialect.taskRole(client.caller.capabilities) !== 'none';
  if (reading.kind === 'task' && mayCreateTask) return { kind: 'task', state: reading.result };
  assertComplete(upstream, method, reading);
  return undefined;
}

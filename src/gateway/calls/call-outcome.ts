import { memberOf } from '../../json/record.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { type InputRequest, type InputRequired, mayRequireInput, readResult } from '../../protocol/input-required.ts';
import type { Answer, parsed, RpcError } from '../../protocol/jsonrpc.ts';
import { canBeAsked, capabilitiesNeededFor } from '../exchange/client-capabilities.ts';
import type { Exchange } from '../exchange/exchange.ts';

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

/** @throws {GatewayError} `missing-capability`, `upstream-protocol`: the request did not declare the capability for this question. */
function assertDeclared(
  upstream: string,
  { client }: Exchange,
  { method, params = RawObject.EMPTY }: InputRequest,
): void {
  if (canBeAsked(client.clientCapabilities, method, params)) return;
  const requiredCapabilities = capabilitiesNeededFor(method, params);
  if (requiredCapabilities === undefined) {
    const message = `upstream "${upstream}" asks for ${method}, which no client can be asked for`;
    throw new GatewayError('upstream-protocol', { upstream, message });
  }
  throw new GatewayError('missing-capability', {
    upstream,
    executed: 'unknown',
    message: `upstream "${upstream}" asks for ${method}`,
    data: { requiredCapabilities },
  });
}

/**
 * Returns the outcome with an upstream's questions for a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`: the request did not declare the capability for one of them.
 */
export function inputRequired(upstream: string, exchange: Exchange, asked: InputRequired): CallOutcome {
  for (const request of asked.inputRequests) assertDeclared(upstream, exchange, request);
  return { kind: 'input-required', inputRequired: asked };
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
  { request, client }: Exchange,
  result: RawObject,
): IncompleteResult | undefined {
  const { method } = request;
  const reading = readResult(result);
  const broken = (why: string) =>
    new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" answered with ${why}` });
  switch (reading.kind) {
    case 'complete':
    case 'absent':
      return undefined;
    case 'input-required':
      if (!mayRequireInput(method)) throw broken(`questions, which ${method} may not be answered with`);
      return reading;
    case 'task':
      if (method !== 'tools/call' || client.dialect.taskRole(client.caller.capabilities) === 'none') {
        throw broken('a task, which nobody asked for');
      }
      return { kind: 'task', state: reading.result };
    case 'unknown':
      throw broken(`a result of type ${reading.resultType}, which nobody declared`);
    case 'malformed':
      throw broken(`a result that ${reading.why}`);
  }
}

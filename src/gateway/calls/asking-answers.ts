import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { type InputRequest, type InputRequired, mayRequireInput, readResult } from '../../protocol/input-required.ts';
import type { Answer, RpcError } from '../../protocol/jsonrpc.ts';
import { declaresTasks } from '../../protocol/tasks.ts';
import { canBeAsked, capabilitiesNeededFor, modernCapabilities } from '../exchange/client-capabilities.ts';
import type { Exchange } from '../exchange/exchange.ts';

/** A page that a user must open before a legacy upstream makes the call. */
export interface UrlElicitation {
  readonly elicitationId: string;
  readonly url: string;
  readonly message: string;
}

/** The end of a call: an answer, or what a modern client has to provide before it makes the call again. */
export type CallOutcome =
  | { readonly kind: 'answer'; readonly answer: Answer }
  | { readonly kind: 'input-required'; readonly inputRequired: InputRequired }
  | { readonly kind: 'pages-required'; readonly pages: readonly UrlElicitation[] };

/** Checks that a request declared the capability for a question about it. @throws {GatewayError} `missing-capability`, `upstream-protocol` */
function mustBeDeclared(
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
 * Returns the outcome that carries an upstream's questions to a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`: the client did not declare that it can be asked one of them.
 */
export function inputRequired(upstream: string, exchange: Exchange, asked: InputRequired): CallOutcome {
  for (const request of asked.inputRequests) mustBeDeclared(upstream, exchange, request);
  return { kind: 'input-required', inputRequired: asked };
}

/**
 * Reads the pages that an error of a legacy upstream names, and returns the outcome that carries them to a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`
 */
export function pagesRequired(upstream: string, exchange: Exchange, { message, data }: RpcError): CallOutcome {
  const { client, request } = exchange;
  const listed: unknown = typeof data === 'object' && data !== null && 'elicitations' in data ? data.elicitations : [];
  const pages = (Array.isArray(listed) ? listed : []).flatMap((one: unknown) => (isUrlElicitation(one) ? [one] : []));
  if (pages.length === 0 || !mayRequireInput(request.method)) {
    const why = pages.length === 0 ? 'names none' : `${request.method} cannot wait for that`;
    throw new GatewayError('upstream-protocol', {
      upstream,
      executed: 'no',
      message: `upstream "${upstream}" wants pages opened, and ${why}: ${message}`,
    });
  }
  if (client.clientCapabilities.object('elicitation')?.raw('url') === undefined) {
    const requiredCapabilities = { elicitation: { url: {} } };
    throw new GatewayError('missing-capability', { upstream, message, data: { requiredCapabilities } });
  }
  return { kind: 'pages-required', pages };
}

function isUrlElicitation(one: unknown): one is UrlElicitation {
  return (
    typeof one === 'object' &&
    one !== null &&
    ['elicitationId', 'url', 'message'].every(
      (key) => typeof Object.getOwnPropertyDescriptor(one, key)?.value === 'string',
    )
  );
}

/**
 * Returns the questions in a result of a modern upstream, or the task where the result is one; undefined for any other result.
 *
 * @throws {GatewayError} `upstream-protocol`: the request may not be answered so.
 */
export function readAsking(
  upstream: string,
  { request, client }: Exchange,
  result: RawObject,
): InputRequired | RawObject | undefined {
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
      return reading.asked;
    case 'task':
      if (method !== 'tools/call' || !declaresTasks(modernCapabilities(client))) {
        throw broken('a task, which nobody asked for');
      }
      return reading.result;
    case 'unknown':
      throw broken(`a result of type ${reading.resultType}, which nobody declared`);
    case 'malformed':
      throw broken(`a result that ${reading.why}`);
  }
}

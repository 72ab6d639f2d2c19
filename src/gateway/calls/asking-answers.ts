import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { type InputRequest, type InputRequired, mayRequireInput, readResult } from '../../protocol/input-required.ts';
import type { RpcError } from '../../protocol/jsonrpc.ts';
import { declaresTasks } from '../../protocol/tasks.ts';
import { canBeAsked, capabilitiesNeededFor, modernCapabilities } from '../exchange/client-capabilities.ts';
import type { Exchange } from '../exchange/exchange.ts';

/** Carries the questions of a modern upstream to a modern client, which gets them as the answer to its request. */
export class InputRequiredError extends Error {
  override readonly name = 'InputRequiredError';
  readonly inputRequired: InputRequired;

  constructor(inputRequired: InputRequired) {
    super('input required');
    this.inputRequired = inputRequired;
  }
}

/** A page that a user must open before a legacy upstream makes the call. */
export interface UrlElicitation {
  readonly elicitationId: string;
  readonly url: string;
  readonly message: string;
}

/** Carries the pages that the user of a modern client must open before a legacy upstream makes the call. */
export class UrlRequiredError extends Error {
  override readonly name = 'UrlRequiredError';
  readonly elicitations: readonly UrlElicitation[];

  constructor(elicitations: readonly UrlElicitation[]) {
    super('pages must be opened');
    this.elicitations = elicitations;
  }
}

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
 * Returns the error that carries an upstream's questions to a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`: the client did not declare that it can be asked one of them.
 */
export function inputRequiredError(upstream: string, exchange: Exchange, asked: InputRequired): InputRequiredError {
  for (const request of asked.inputRequests) mustBeDeclared(upstream, exchange, request);
  return new InputRequiredError(asked);
}

/**
 * Reads the pages that an error of a legacy upstream names, and returns the error that carries them to a modern client.
 *
 * @throws {GatewayError} `missing-capability`, `upstream-protocol`
 */
export function urlRequiredError(upstream: string, exchange: Exchange, { message, data }: RpcError): UrlRequiredError {
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
  return new UrlRequiredError(pages);
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

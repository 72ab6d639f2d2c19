import { errorToClient, toClient as urisToClient } from '../catalog/rewrite.ts';
import type { ViewUpstream } from '../catalog/view.ts';
import { GatewayError } from '../errors.ts';
import { JsonTextError } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { lowerResult } from '../protocol/lower.ts';
import { MODERN } from '../protocol/revisions.ts';
import { elicitationIdToClient } from './asks.ts';
import type { Client, Exchange } from './exchange.ts';

/** URL_ELICITATION_REQUIRED of 2025-11-25. */
const NEEDS_URL = -32042;

/** An upstream's answer as the client can read it: under the URIs it knows, in the words of its revision. @throws {GatewayError} */
export function toClient(exchange: Exchange, upstream: string, answer: Answer): Answer {
  const { client, request } = exchange;
  const seat = client.catalog.view.upstreams.find(({ id }) => id === upstream);
  if (seat === undefined) return answer;
  if (answer.kind === 'error') {
    const error = errorToClient(answer.error, seat);
    if (error.code !== NEEDS_URL) return { kind: 'error', error };
    return { kind: 'error', error: { ...error, data: elicitationsToClient(client, upstream, error.data) } };
  }
  const result = resultToClient(client, request.method, seat, answer.result);
  return result === answer.result ? answer : { kind: 'result', result };
}

function resultToClient(client: Client, method: string, seat: ViewUpstream, result: string): string {
  const { revision } = client.caller;
  try {
    const known = urisToClient(method, seat, result);
    return revision === MODERN ? known : lowerResult(method, revision, known);
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const say = `upstream "${seat.id}" answered ${method} with what is not well-formed JSON`;
    throw new GatewayError('upstream-protocol', { upstream: seat.id, executed: 'yes', say }, thrown);
  }
}

function elicitationsToClient(client: Client, upstream: string, data: unknown): unknown {
  if (typeof data !== 'object' || data === null || !('elicitations' in data)) return data;
  const { elicitations } = data;
  if (!Array.isArray(elicitations)) return data;
  const mapped = elicitations.map((elicitation: unknown) => {
    if (typeof elicitation !== 'object' || elicitation === null || !('elicitationId' in elicitation))
      return elicitation;
    const id = elicitationIdToClient(client, upstream, String(elicitation.elicitationId));
    return { ...elicitation, elicitationId: id };
  });
  return { ...data, elicitations: mapped };
}

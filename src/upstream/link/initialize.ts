import { GatewayError, upstreamError } from '../../errors.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import { isLegacyRevision, isModernRevision, LATEST_LEGACY, type Revision } from '../../protocol/revisions.ts';
import { isRefusedByStatus, isModernError } from './era-evidence.ts';
import type { Connection } from '../rpc/connection.ts';
import { resultOrError } from '../../thrown.ts';

/** The description of an upstream in its answer to the handshake. */
export interface ServerHello<R extends Revision = Revision> {
  readonly revision: R;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  readonly instructions: string | undefined;
}

export type InitializeOutcome =
  | { readonly kind: 'legacy'; readonly hello: ServerHello }
  /** `isModern`: the error, or the revision in the answer, proves support of the modern era. */
  | { readonly kind: 'refused'; readonly error: GatewayError; readonly isModern: boolean };

/** Returns the instructions in the answer to a handshake. Those that are too long are cut. */
export function readInstructions(connection: Connection, result: RawObject): string | undefined {
  const text = result.string('instructions');
  if (text === undefined) return undefined;
  if (text.length <= LIMITS.instructionsChars) return detach(text);
  connection.countLimit('instructionsChars');
  return detach(text.slice(0, LIMITS.instructionsChars).toWellFormed());
}

/**
 * Performs the legacy handshake: `initialize`, then `notifications/initialized`.
 *
 * @param capabilities exactly the capabilities of the client that this connection serves.
 * @throws {GatewayError} `upstream-protocol` if the answer cannot be read, or names an unsupported revision; any error of the
 *   transport, except a status that refuses the request.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization
 */
export async function initialize(
  connection: Connection,
  capabilities: RawObject,
  clientInfo: RawObject,
  timeoutMs: number,
): Promise<InitializeOutcome> {
  const { upstream } = connection;
  const params = RawObject.EMPTY.with('protocolVersion', JSON.stringify(LATEST_LEGACY))
    .with('capabilities', capabilities.toString())
    .with('clientInfo', clientInfo.toString());
  const call = connection.call('initialize', params, {
    timeoutMs,
    maxMs: timeoutMs,
    progress: false,
    context: undefined,
  });
  let answer;
  try {
    answer = await call.answer;
  } catch (thrown) {
    if (!(thrown instanceof GatewayError) || !isRefusedByStatus(thrown)) throw thrown;
    return { kind: 'refused', error: thrown, isModern: false };
  }
  if (answer.kind === 'error') {
    const error = upstreamError('upstream-unavailable', upstream, `refused initialize: ${answer.error.message}`);
    return { kind: 'refused', error, isModern: isModernError(answer.error) };
  }
  const text = answer.result;
  const outcome = resultOrError(JsonTextError, () => readAnswer(connection, RawObject.parse(text)));
  if (outcome instanceof JsonTextError) {
    const event = 'answered initialize with a result that cannot be read';
    throw upstreamError('upstream-protocol', upstream, event, { executed: 'no' }, outcome);
  }
  if (outcome.kind === 'legacy') {
    connection.setRevision(outcome.hello.revision);
    connection.notify('notifications/initialized');
  }
  return outcome;
}

/** @throws {JsonTextError | GatewayError} `upstream-protocol` */
function readAnswer(connection: Connection, result: RawObject): InitializeOutcome {
  const { upstream } = connection;
  const revision = result.string('protocolVersion');
  if (isModernRevision(revision)) {
    const event = `answered initialize with revision ${revision}, which has no initialize`;
    const error = upstreamError('upstream-protocol', upstream, event, { executed: 'no' });
    return { kind: 'refused', error, isModern: true };
  }
  if (!isLegacyRevision(revision)) {
    const chosen = result.raw('protocolVersion') ?? '(none)';
    const event = `chose protocol revision ${chosen}, which the gateway does not support`;
    throw upstreamError('upstream-protocol', upstream, event, { executed: 'no' });
  }
  const hello: ServerHello = {
    revision,
    capabilities: result.object('capabilities')?.detached() ?? RawObject.EMPTY,
    serverInfo: result.object('serverInfo')?.detached() ?? RawObject.EMPTY,
    instructions: readInstructions(connection, result),
  };
  return { kind: 'legacy', hello };
}

import { GatewayError } from '../errors.ts';
import { RawObject } from '../json/json.ts';
import { isLegacyRevision, LATEST_LEGACY, type Revision } from '../protocol/revisions.ts';
import type { Connection } from './rpc/connection.ts';

/** What an upstream said of itself. */
export interface ServerHello {
  readonly revision: Revision;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  readonly instructions: string | undefined;
}

/**
 * Opens the conversation: `initialize`, then `notifications/initialized`.
 *
 * @param capabilities what our side is told to be able to do: exactly what the client behind this connection can.
 * @throws {GatewayError} `upstream-unavailable` or `upstream-protocol`
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization
 */
export async function initialize<Owner>(
  upstream: string,
  connection: Connection<Owner>,
  capabilities: RawObject,
  clientInfo: RawObject,
  timeoutMs: number,
): Promise<ServerHello> {
  const params = RawObject.EMPTY.with('protocolVersion', JSON.stringify(LATEST_LEGACY))
    .with('capabilities', capabilities.toString())
    .with('clientInfo', clientInfo.toString());
  const call = connection.call('initialize', params, {
    timeoutMs,
    maxMs: timeoutMs,
    progress: false,
    context: undefined,
  });
  const answer = await call.answer;
  if (answer.kind === 'error') {
    throw new GatewayError('upstream-unavailable', {
      upstream,
      message: `upstream "${upstream}" refused initialize: ${answer.error.message}`,
    });
  }
  const result = RawObject.parse(answer.result);
  const revision = result.string('protocolVersion');
  if (!isLegacyRevision(revision)) {
    throw new GatewayError('upstream-protocol', {
      upstream,
      executed: 'no',
      message: `upstream "${upstream}" chose protocol revision ${result.raw('protocolVersion') ?? '(none)'}, which we do not speak`,
    });
  }
  connection.setRevision(revision);
  connection.notify('notifications/initialized');
  return {
    revision,
    capabilities: result.object('capabilities') ?? RawObject.EMPTY,
    serverInfo: result.object('serverInfo') ?? RawObject.EMPTY,
    instructions: result.string('instructions'),
  };
}

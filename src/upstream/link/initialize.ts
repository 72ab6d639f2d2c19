import { GatewayError, upstreamError } from '../../errors.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import { isLegacyRevision, isModernRevision, LEGACY_REVISIONS, type Revision } from '../../protocol/revisions.ts';
import { isRefusedByStatus, isModernError, isUnrelatedError, reasonOfStatus, supportedBy } from './era-evidence.ts';
import type { Proposals } from './proposals.ts';
import type { RpcError } from '../../protocol/jsonrpc.ts';
import type { Connection } from '../rpc/connection.ts';
import { resultOrError } from '../../thrown.ts';

/** The description of an upstream in its answer to the handshake. */
export interface ServerHello<R extends Revision = Revision> {
  readonly revision: R;
  readonly capabilities: RawObject;
  readonly serverInfo: RawObject;
  readonly instructions: string | undefined;
}

/** Named by servers of early SDKs. Its messages are those of the first revision after it. */
const DRAFT = '2024-10-07';

export type InitializeOutcome = { readonly kind: 'legacy'; readonly hello: ServerHello } | Refused;

interface Refused {
  readonly kind: 'refused';
  readonly error: GatewayError;
  /** The last answer, if it was an error. */
  readonly refusal?: RpcError;
  /** True if the error, or the revision in the answer, proves support of the modern era. */
  readonly isModern: boolean;
  /** True if the current one of the proposals has not reached the upstream, so that a new connection may have success. */
  readonly isUnfinished?: boolean;
}

/** Returns the instructions in the answer to a handshake. Those that are too long are cut. */
export function readInstructions(connection: Connection, result: RawObject): string | undefined {
  const text = result.string('instructions');
  if (text === undefined) return undefined;
  if (text.length <= LIMITS.instructionsChars) return detach(text);
  connection.countLimit('instructionsChars');
  return detach(text.slice(0, LIMITS.instructionsChars).toWellFormed());
}

/** Returns the capabilities of a server, or its name and version, to be kept. Clients get parts of them, so members that do not fit are left out. */
export function readHello(connection: Connection, said: RawObject | undefined): RawObject {
  if (said === undefined) return RawObject.EMPTY;
  let left: number = LIMITS.helloChars;
  if (said.toString().length <= left) return said.detached();
  connection.countLimit('helloChars');
  const fits = (name: string) => {
    const chars = JSON.stringify(name).length + (said.raw(name)?.length ?? 0);
    if (chars > left) return false;
    left -= chars;
    return true;
  };
  const kept = new Set(said.keys().filter(fits));
  return said.filter((name) => kept.has(name)).detached();
}

/**
 * Performs the legacy handshake: `initialize`, then `notifications/initialized`. An upstream that refuses the proposed revision is asked
 * for another one.
 *
 * @param capabilities exactly the capabilities of the client that this connection serves.
 * @throws {GatewayError} `upstream-protocol` if the answer cannot be read, or names an unsupported revision; any error of the
 *   transport, except a status that refuses the request. `upstream-unavailable` if the answer is an error that says nothing about the era.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization
 */
export async function initialize(
  connection: Connection,
  capabilities: RawObject,
  clientInfo: RawObject,
  timeoutMs: number,
  proposals: Proposals,
): Promise<InitializeOutcome> {
  const { upstream } = connection;
  let refused: Refused | undefined;
  for (;;) {
    const params = RawObject.EMPTY.with('protocolVersion', JSON.stringify(proposals.current))
      .with('capabilities', capabilities.toString())
      .with('clientInfo', clientInfo.toString());
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined } as const;
    let answer;
    try {
      answer = await connection.call('initialize', params, options).answer;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown;
      if (refused !== undefined && connection.isClosed) return { ...refused, isUnfinished: true };
      if (!isRefusedByStatus(thrown)) throw thrown;
      refused = { kind: 'refused', error: thrown, isModern: false };
      if (!proposals.moveOn(reasonOfStatus(thrown))) return refused;
      continue;
    }
    if (answer.kind === 'result') return accept(connection, answer.result);
    const { error } = answer;
    refused = { kind: 'refused', error: errorOf(upstream, error), refusal: error, isModern: isModernError(error) };
    if (!proposals.moveOn(error.message, error.data)) {
      if (isUnrelatedError(error)) throw refused.error;
      return refused;
    }
    // A session that began with a refusal may take no further initialize.
    if (connection.session !== undefined) return { ...refused, isUnfinished: true };
  }
}

function errorOf(upstream: string, { message, data }: RpcError): GatewayError {
  const supported = supportedBy(data).filter((one) => typeof one === 'string');
  const which = supported.length === 0 ? '' : ` (it supports ${supported.join(', ')})`;
  return upstreamError('upstream-unavailable', upstream, `refused initialize: ${message}${which}`);
}

/** Reads the result of `initialize`, and confirms one of a legacy revision. @throws {GatewayError} `upstream-protocol` */
function accept(connection: Connection, text: string): InitializeOutcome {
  const outcome = resultOrError(JsonTextError, () => readAnswer(connection, RawObject.parse(text)));
  if (outcome instanceof JsonTextError) {
    const event = 'answered initialize with a result that cannot be read';
    throw upstreamError('upstream-protocol', connection.upstream, event, { executed: 'no' }, outcome);
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
  const named = result.string('protocolVersion');
  const revision = named === DRAFT ? LEGACY_REVISIONS[0] : named;
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
    capabilities: readHello(connection, result.object('capabilities')),
    serverInfo: readHello(connection, result.object('serverInfo')),
    instructions: readInstructions(connection, result),
  };
  return { kind: 'legacy', hello };
}

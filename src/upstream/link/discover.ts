import { GatewayError, upstreamError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { RpcError } from '../../protocol/jsonrpc.ts';
import { META } from '../../protocol/meta.ts';
import {
  isModernDate,
  isModernRevision,
  LATEST_MODERN,
  latestCommon,
  type ModernRevision,
} from '../../protocol/revisions.ts';
import type { Connection } from '../rpc/connection.ts';
import { readHello, readInstructions, type ServerHello } from './initialize.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import {
  isModernError,
  isRedirect,
  isRefusedByStatus,
  isTransientFailure,
  isUnrelatedError,
  supportedBy,
} from './era-evidence.ts';

/** The outcome of `server/discover`. `legacy`: the upstream does not support the modern era. */
export type DiscoverOutcome =
  | { readonly kind: 'modern'; readonly hello: ServerHello<ModernRevision> }
  /** `refusal`: the last answer, if it was an error. */
  | { readonly kind: 'legacy'; readonly refusal?: RpcError }
  | Undecided;

interface Undecided {
  readonly kind: 'unknown';
  readonly error: GatewayError;
  /** True if the upstream has answered. */
  readonly isAnswered: boolean;
  /** True if only a server of the modern era answers with this error. */
  readonly isModern: boolean;
}

/** Returns the revision to ask for instead of the one that the server has refused; undefined if there is none. */
function proposedBy({ code, data }: RpcError): ModernRevision | undefined {
  return code === RPC.unsupportedVersion ? latestCommon(supportedBy(data)) : undefined;
}

function verdictOnError({ upstream }: Connection, error: RpcError): DiscoverOutcome {
  const isModern = isModernError(error);
  if (!isModern && !isUnrelatedError(error)) return { kind: 'legacy', refusal: error };
  const newer = supportedBy(error.data).filter((one) => isModernDate(one) && !isModernRevision(String(one)));
  const event =
    newer.length > 0
      ? `supports only protocol revision ${newer.join(', ')}, which the gateway does not`
      : `refused server/discover: ${error.message}`;
  return { kind: 'unknown', error: upstreamError('upstream-unavailable', upstream, event), isAnswered: true, isModern };
}

/**
 * Sends `server/discover`, to find out whether an upstream supports the modern era. Never rejects.
 *
 * @param timeoutMs longest wait for an answer, in milliseconds.
 * @param decided aborts when the connection has got another era: the request is not sent again then.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
 */
export async function discover(
  connection: Connection,
  clientInfo: RawObject,
  timeoutMs: number,
  decided?: AbortSignal,
): Promise<DiscoverOutcome> {
  try {
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, isBackground: true, context: undefined } as const;
    const sendDiscover = (revision: ModernRevision) => {
      connection.setModern(revision, clientInfo);
      return connection.call('server/discover', undefined, options).answer;
    };
    let answer = await sendDiscover(LATEST_MODERN);
    // The specification tells clients to send the request again, even if the error lists the revision of our request.
    const proposed = answer.kind === 'error' ? proposedBy(answer.error) : undefined;
    if (proposed !== undefined && decided?.aborted !== true) answer = await sendDiscover(proposed);
    if (answer.kind === 'error') return verdictOnError(connection, answer.error);
    const result = RawObject.parse(answer.result);
    const versions = result.value('supportedVersions');
    const revision = Array.isArray(versions) ? latestCommon(versions) : undefined;
    if (revision === undefined) return { kind: 'legacy' };
    const hello = {
      revision,
      capabilities: readHello(connection, result.object('capabilities')),
      serverInfo: readHello(connection, result.object('_meta')?.object(META.serverInfo)),
      instructions: readInstructions(connection, result),
    };
    return { kind: 'modern', hello };
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) return { kind: 'legacy' };
    // A modern server answers with JSON-RPC. A redirect says nothing about the server behind it.
    return !isRedirect(thrown) && (isRefusedByStatus(thrown) || thrown.code === 'upstream-protocol')
      ? { kind: 'legacy' }
      : { kind: 'unknown', error: thrown, isAnswered: isTransientFailure(thrown), isModern: false };
  }
}

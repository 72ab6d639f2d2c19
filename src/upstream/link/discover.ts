import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { RpcError } from '../../protocol/jsonrpc.ts';
import { META } from '../../protocol/meta.ts';
import { MODERN } from '../../protocol/revisions.ts';
import type { Connection } from '../rpc/connection.ts';
import type { ServerHello } from './initialize.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { isModernError, isRefusedByStatus, supportedBy } from './era-evidence.ts';

/** The outcome of `server/discover`. `legacy`: the upstream does not support the modern era. */
export type DiscoverOutcome =
  | { readonly kind: 'modern'; readonly hello: ServerHello }
  | { readonly kind: 'legacy' }
  /** Undecided, because of `error`. `isModern`: only a server of the modern era answers with this error. */
  | { readonly kind: 'unknown'; readonly error: GatewayError; readonly isModern: boolean };

function readHello(result: RawObject): ServerHello {
  return {
    revision: MODERN,
    capabilities: result.object('capabilities') ?? RawObject.EMPTY,
    serverInfo: result.object('_meta')?.object(META.serverInfo) ?? RawObject.EMPTY,
    instructions: result.string('instructions'),
  };
}

function versionsOf(list: unknown): readonly unknown[] {
  return Array.isArray(list) ? list : [];
}

function supportsModern({ code, data }: RpcError): boolean {
  return code === RPC.unsupportedVersion && supportedBy(data).includes(MODERN);
}

function verdictOnError(upstream: string, error: RpcError): DiscoverOutcome {
  if (!isModernError(error)) return { kind: 'legacy' };
  const newer = supportedBy(error.data).filter((version) => String(version) > MODERN);
  const message =
    newer.length > 0
      ? `upstream "${upstream}" supports only protocol revision ${newer.join(', ')}, which the gateway does not`
      : `upstream "${upstream}" refused server/discover: ${error.message}`;
  return { kind: 'unknown', error: new GatewayError('upstream-unavailable', { upstream, message }), isModern: true };
}

/**
 * Sends `server/discover`, to find out whether an upstream supports the modern era. Never rejects.
 *
 * @param timeoutMs longest wait for an answer, in milliseconds.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
 */
export async function discover<Context>(
  upstream: string,
  connection: Connection<Context>,
  clientInfo: RawObject,
  timeoutMs: number,
): Promise<DiscoverOutcome> {
  try {
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, isBackground: true, context: undefined } as const;
    const sendDiscover = () => {
      connection.setModernClientInfo(clientInfo);
      return connection.call('server/discover', undefined, options).answer;
    };
    let answer = await sendDiscover();
    // The error lists the revision of our request. The specification tells clients to send the request again.
    if (answer.kind === 'error' && supportsModern(answer.error)) answer = await sendDiscover();
    if (answer.kind === 'error') return verdictOnError(upstream, answer.error);
    const result = RawObject.parse(answer.result);
    return versionsOf(result.value('supportedVersions')).includes(MODERN)
      ? { kind: 'modern', hello: readHello(result) }
      : { kind: 'legacy' };
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) return { kind: 'legacy' };
    // A modern server answers with JSON-RPC.
    return isRefusedByStatus(thrown) || thrown.code === 'upstream-protocol'
      ? { kind: 'legacy' }
      : { kind: 'unknown', error: thrown, isModern: false };
  }
}

import { GatewayError } from '../errors.ts';
import { RawObject } from '../json/json.ts';
import type { RpcError } from '../protocol/jsonrpc.ts';
import { META } from '../protocol/meta.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Connection } from './rpc/connection.ts';
import type { ServerHello } from './initialize.ts';
import { isModernError, isRefusingStatus, supportedBy, UNSUPPORTED_VERSION } from './era-evidence.ts';

/** What the answer to `server/discover` says of an upstream's eras. `legacy`: it does not speak the modern one. */
export type Verdict =
  | { readonly kind: 'modern'; readonly hello: ServerHello }
  | { readonly kind: 'legacy' }
  /** No verdict; `error` says why. `isModern` where only a modern server answers so. */
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

function supports({ code, data }: RpcError): boolean {
  return code === UNSUPPORTED_VERSION && supportedBy(data).includes(MODERN);
}

function judgeError(upstream: string, error: RpcError): Verdict {
  if (!isModernError(error)) return { kind: 'legacy' };
  const newer = supportedBy(error.data).filter((version) => String(version) > MODERN);
  const message =
    newer.length > 0
      ? `upstream "${upstream}" speaks only protocol revision ${newer.join(', ')}, which we do not`
      : `upstream "${upstream}" refused server/discover: ${error.message}`;
  return { kind: 'unknown', error: new GatewayError('upstream-unavailable', { upstream, message }), isModern: true };
}

/**
 * Probes whether an upstream speaks the modern era, with `server/discover`. Never rejects.
 *
 * @param timeoutMs how long to wait for an answer.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
 */
export async function discover<Owner>(
  upstream: string,
  connection: Connection<Owner>,
  clientInfo: RawObject,
  timeoutMs: number,
): Promise<Verdict> {
  try {
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, background: true, context: undefined } as const;
    const ask = () => {
      connection.speakModern(clientInfo);
      return connection.call('server/discover', undefined, options).answer;
    };
    let answer = await ask();
    // It names the very revision we asked in: once more, as the specification has it.
    if (answer.kind === 'error' && supports(answer.error)) answer = await ask();
    if (answer.kind === 'error') return judgeError(upstream, answer.error);
    const result = RawObject.parse(answer.result);
    return versionsOf(result.value('supportedVersions')).includes(MODERN)
      ? { kind: 'modern', hello: readHello(result) }
      : { kind: 'legacy' };
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) return { kind: 'legacy' };
    // A modern server does not answer with something that is not JSON-RPC.
    return isRefusingStatus(thrown) || thrown.code === 'upstream-protocol'
      ? { kind: 'legacy' }
      : { kind: 'unknown', error: thrown, isModern: false };
  }
}

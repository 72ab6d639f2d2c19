import { GatewayError } from '../errors.ts';
import { RawObject } from '../json/json.ts';
import type { RpcError } from '../protocol/jsonrpc.ts';
import { META } from '../protocol/meta.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Connection } from './rpc/connection.ts';
import type { ServerHello } from './initialize.ts';
import { HttpStatusError } from './rpc/http-status-error.ts';

/** What an upstream's answer to `server/discover` says about its era. */
export type Verdict =
  | { readonly kind: 'modern'; readonly hello: ServerHello }
  | { readonly kind: 'legacy' }
  /** No answer that tells; `error` says why. `isModern` where a server of the older era would not answer so. */
  | { readonly kind: 'unknown'; readonly error: GatewayError; readonly isModern: boolean };

/** Errors that only a server of the modern era knows. */
const UNSUPPORTED_VERSION = -32022;
const MODERN_ERRORS = new Set([-32020, -32021, UNSUPPORTED_VERSION]);

/** Statuses that say nothing about what the server speaks. */
function isPassing(status: number): boolean {
  return status === 401 || status === 403 || status === 408 || status === 429 || status >= 500;
}

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

function supportedBy(data: unknown): readonly unknown[] {
  return versionsOf(typeof data === 'object' && data !== null && 'supported' in data ? data.supported : []);
}

function judgeError(upstream: string, { code, message, data }: RpcError): Verdict {
  if (!MODERN_ERRORS.has(code)) return { kind: 'legacy' };
  const supported = supportedBy(data);
  const newer = supported.filter((version) => String(version) > MODERN);
  if (code === UNSUPPORTED_VERSION && newer.length === 0 && !supported.includes(MODERN)) return { kind: 'legacy' };
  const explanation =
    newer.length > 0
      ? `upstream "${upstream}" speaks only protocol revision ${newer.join(', ')}, which we do not`
      : `upstream "${upstream}" refused server/discover: ${message}`;
  return {
    kind: 'unknown',
    error: new GatewayError('upstream-unavailable', { upstream, message: explanation }),
    isModern: true,
  };
}

/**
 * Finds out whether an upstream speaks the modern era, by asking as that era asks.
 *
 * @param timeoutMs how long silence is waited for.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
 */
export async function discover<Owner>(
  upstream: string,
  connection: Connection<Owner>,
  clientInfo: RawObject,
  timeoutMs: number,
): Promise<Verdict> {
  connection.speakModern(clientInfo);
  try {
    const options = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined };
    const ask = () => connection.call('server/discover', undefined, options).answer;
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
    const { cause, code } = thrown;
    const isRefused = cause instanceof HttpStatusError && !isPassing(cause.status);
    // What is not even an answer is no modern server's answer.
    return isRefused || code === 'upstream-protocol'
      ? { kind: 'legacy' }
      : { kind: 'unknown', error: thrown, isModern: false };
  }
}

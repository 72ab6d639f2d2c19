import { isLoopback } from '../../config/address.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { InputRequest } from '../../protocol/input-required.ts';

/** Largest `maxTokens` that a client is asked for. */
const MAX_SAMPLING_TOKENS = 32_768;

/**
 * Whether a page may be shown to a user: https, or http on this machine, and no user name or password in the URL, since both
 * are used to make an address look like another.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#safe-url-handling
 */
export function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

/** @throws {GatewayError} `upstream-protocol` when one of the questions may not go to a client. */
export function mustBeSafe(upstream: string, questions: readonly Pick<InputRequest, 'method' | 'params'>[]): void {
  for (const { method, params = RawObject.EMPTY } of questions) {
    const unsafe = unsafeReason(method, params);
    if (unsafe === undefined) continue;
    throw new GatewayError('upstream-protocol', {
      upstream,
      message: `upstream "${upstream}" asked for too much: ${unsafe}`,
    });
  }
}

/** Returns the reason why a server request does not go to a client; undefined when it does. */
export function unsafeReason(method: string, params: RawObject): string | undefined {
  if (method !== 'elicitation/create' || params.string('mode') !== 'url') return undefined;
  if (isSafeUrl(params.string('url') ?? '')) return undefined;
  return 'the URL of an elicitation must be https (http for this machine alone), without user name and password';
}

/**
 * Returns the parameters of `sampling/createMessage` with `maxTokens` capped, since the client's user pays for them, and
 * without context beyond this server.
 *
 * @param isOnlyServer whether "this server" means to the client what it means to the upstream.
 */
export function boundedSampling(params: RawObject, isOnlyServer: boolean): RawObject {
  let bounded = params;
  const maxTokens = Number(params.raw('maxTokens') ?? '0');
  if (!(maxTokens <= MAX_SAMPLING_TOKENS)) bounded = bounded.with('maxTokens', String(MAX_SAMPLING_TOKENS));
  const context = params.string('includeContext');
  if (context !== undefined && context !== 'none') {
    bounded = bounded.with('includeContext', isOnlyServer ? '"thisServer"' : '"none"');
  }
  return bounded;
}

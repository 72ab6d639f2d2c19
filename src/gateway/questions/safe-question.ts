import { isLoopback } from '../../config/address.ts';
import type { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';

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
 * @param onCap runs when `maxTokens` is capped.
 */
export function boundedSampling(params: RawObject, isOnlyServer: boolean, onCap: () => void): RawObject {
  let bounded = params;
  const maxTokens = Number(params.raw('maxTokens') ?? '0');
  if (!(maxTokens <= LIMITS.samplingTokens)) {
    bounded = bounded.with('maxTokens', String(LIMITS.samplingTokens));
    onCap();
  }
  const context = params.string('includeContext');
  if (context !== undefined && context !== 'none') {
    bounded = bounded.with('includeContext', isOnlyServer ? '"thisServer"' : '"none"');
  }
  return bounded;
}

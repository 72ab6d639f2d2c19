import { isLoopback } from '../../config/schema/address.ts';
import type { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';

/**
 * Returns whether a URL may be shown to a user: https, or http on this machine, without user name and password, since
 * attackers use both to disguise an address.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#safe-url-handling
 */
export function isSafeUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

/** Returns the reason why a server request must not reach the client; undefined if it may. */
export function unsafeReason(method: string, params: RawObject): string | undefined {
  if (method !== 'elicitation/create' || params.string('mode') !== 'url') return undefined;
  if (isSafeUrl(params.string('url') ?? '')) return undefined;
  return 'the URL of an elicitation must be https (http for this machine alone), without user name and password';
}

/**
 * Returns the params of `sampling/createMessage` with `maxTokens` capped, since the client's user pays for the tokens,
 * and without context of other servers.
 *
 * @param isOnlyServer whether `thisServer` means this upstream alone to the client.
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

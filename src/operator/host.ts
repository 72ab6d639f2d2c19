import { isIP } from 'node:net';

/**
 * Returns whether a `Host` header names this gateway. A web page rebound to our address (DNS rebinding) still sends its
 * own host name. Addresses are accepted, because no page can use one as its name, and probes use them.
 */
export function isOwnHost(header: string | undefined, allowed: readonly string[]): boolean {
  const [, name = ''] = /^(\[[\da-fA-F:.]+\]|[^:]+)(?::\d+)?$/.exec(header ?? '') ?? [];
  const host = name.toLowerCase();
  if (host === 'localhost' || allowed.some((each) => each.toLowerCase() === host)) return true;
  return isIP(host.startsWith('[') ? host.slice(1, -1) : host) !== 0;
}

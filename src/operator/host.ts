import { isIP } from 'node:net';

/**
 * Whether a `Host` header can only come from someone who means us. A web page that was rebound to our address still sends its
 * own name; an address is nobody's name, and probes use it.
 */
export function isOwnHost(header: string | undefined, allowed: readonly string[]): boolean {
  const [, name = ''] = /^(\[[\da-fA-F:.]+\]|[^:]+)(?::\d+)?$/.exec(header ?? '') ?? [];
  const host = name.toLowerCase();
  if (host === 'localhost' || allowed.some((each) => each.toLowerCase() === host)) return true;
  return isIP(host.startsWith('[') ? host.slice(1, -1) : host) !== 0;
}

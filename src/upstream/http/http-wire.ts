import type { HttpTarget, StdioTarget, UpstreamTimeouts } from '../../config/config.ts';
import type { Wire } from '../../http1/wire.ts';
import { WirePool } from '../../http1/pool.ts';

/**
 * Opens the HTTP client for one upstream and one set of credentials. The number of its sockets is not bounded here: every open
 * stream needs one, and callers bound the requests in flight.
 *
 * Only connecting has a deadline here, because streams can be silent for hours. Each request has deadlines of its own.
 */
export type WireOpener = (target: HttpTarget, timeouts: UpstreamTimeouts) => Wire;

/** Resolves with the opener for these targets. Loads the TLS client, which takes long, only if one of them needs it. */
export async function wireOpener(targets: readonly (HttpTarget | StdioTarget)[]): Promise<WireOpener> {
  const needsTls = targets.some((target) => target.kind !== 'stdio' && isHttps(new URL(target.url)));
  const tls = needsTls ? await import('../../http1/tls.ts') : undefined;
  return (target, { connectMs }) => {
    const url = new URL(target.url);
    if (!isHttps(url)) return new WirePool(url, connectMs);
    if (tls === undefined) throw new TypeError(`no TLS client was loaded for ${url.origin}`);
    return new tls.TlsWire(url, connectMs);
  };
}

function isHttps({ protocol }: URL): boolean {
  return protocol === 'https:';
}

import type { HttpTarget, StdioTarget, UpstreamTimeouts } from '../../config/config.ts';
import type { Wire } from '../../http1/wire.ts';
import { WirePool } from '../../http1/pool.ts';

/**
 * Opens the sockets to one upstream under one set of credentials. They have no bound here: every open stream holds one, and
 * the requests in flight are bounded before they come here.
 *
 * Streams are silent for hours and calls take minutes, so only connecting has a deadline here; every request brings its own.
 */
export type WireOpener = (target: HttpTarget, timeouts: UpstreamTimeouts) => Wire;

/** Returns the opener for these targets. Loads the TLS client only where one of them needs it, since that takes long. */
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

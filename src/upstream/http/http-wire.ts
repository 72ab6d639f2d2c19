import type { HttpTarget, UpstreamTimeouts } from '../../config/config.ts';
import type { Wire } from '../../http1/wire.ts';
import { WirePool } from '../../http1/pool.ts';
import { TlsWire } from '../../http1/tls.ts';

/**
 * The sockets to one upstream under one set of credentials. As many as it takes: every open stream holds one, and how many
 * requests are under way is bounded before they come here.
 *
 * Streams are silent for hours and calls take minutes, so only connecting has a deadline here; every request brings its own.
 */
export function upstreamWire(target: HttpTarget, { connectMs }: UpstreamTimeouts): Wire {
  const url = new URL(target.url);
  return url.protocol === 'http:' ? new WirePool(url, connectMs) : new TlsWire(url, connectMs);
}

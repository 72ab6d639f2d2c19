import { Pool } from 'undici';

import type { HttpTarget, UpstreamTimeouts } from '../config/config.ts';

/** Below the 5 s after which Node and many others close an idle socket, so that no request is written to a dying one. */
const KEEP_ALIVE_MS = 4_000;

/**
 * The sockets to one upstream under one set of credentials. As many as it takes: every open stream holds one, and how many
 * requests are under way is bounded before they come here.
 *
 * Streams are silent for hours and calls take minutes, so only connecting has a deadline here; every request brings its own.
 */
export function upstreamDispatcher(target: HttpTarget, timeouts: UpstreamTimeouts): Pool {
  return new Pool(new URL(target.url).origin, {
    // A second request behind an unanswered one could be written twice.
    pipelining: 1,
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    connect: { timeout: timeouts.connectMs },
  });
}

import type { Logger } from 'pino';
import { createAuthenticator } from './auth/authenticate.ts';
import { composeCore, upstreamTransports } from './compose.ts';
import type { Config } from './config/config.ts';
import { createApp } from './downstream/http/app.ts';
import { Listener } from './listener.ts';
import { createOperatorApp } from './operator/app.ts';
import { createMetrics } from './telemetry/metrics.ts';
import { VERSION } from './version.ts';

/** How long requests in flight may take to end after the request to stop. */
const DRAIN_MS = 60_000;

/** Ports that are tried for the operator where none was configured. */
const OPERATOR_PORTS = 100;

/** A gateway that listens. */
export interface Running {
  /** Of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** Stops taking requests, lets those under way finish, and leaves nothing behind. */
  stop(): Promise<void>;
}

export interface ServeOptions {
  /** Fetches the lists of all upstreams before it listens, at most until this settles. */
  readonly warmUntil?: Promise<unknown>;
}

/**
 * Starts a gateway with its HTTP servers: the endpoint of clients and the operator's port.
 *
 * @throws when an address cannot be listened on, or the state directory not be used.
 */
export async function serve(config: Config, log: Logger, { warmUntil }: ServeOptions = {}): Promise<Running> {
  const metrics = createMetrics(VERSION);
  const core = await composeCore(config, metrics, await upstreamTransports(config, metrics, log), log);
  let isDraining = false;
  const startedAtMs = Date.now();
  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const endpoint = await Listener.open(config.listen, 'gateway.listen or --listen', (origin) => {
      const authenticator = createAuthenticator(config.auth, { log });
      return createApp({ front: core.gateway, authenticator, config, origin, log, metrics });
    });
    const operatorPort =
      config.operator === undefined
        ? undefined
        : await Listener.open(
            config.operator,
            'gateway.operator or --operator',
            () => ({
              app: createOperatorApp({
                metrics,
                version: VERSION,
                allowedHosts: config.allowedHosts,
                startedAtMs,
                ready: () => (isDraining ? { ready: false, reasons: ['shutting down'] } : core.ready()),
                upstreams: () => core.fullStatus(),
              }),
              drain: () => undefined,
            }),
            config.operatorMayMove ? OPERATOR_PORTS : 1,
          );
    return {
      url: `${endpoint.origin}/mcp`,
      operatorUrl: operatorPort?.origin,
      stop: async () => {
        isDraining = true;
        endpoint.drain();
        await core.drained(DRAIN_MS);
        await core.stop();
        await Promise.all([endpoint.close(), operatorPort?.close()]);
      },
    };
  } catch (thrown) {
    await core.stop();
    throw thrown;
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { createAuthenticator } from '../auth/authenticate.ts';
import type { Config } from '../config/config.ts';
import { createApp, createEndpoints } from '../downstream/http/app.ts';
import { createOperatorApp } from '../operator/app.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { type Core, startCore } from './core.ts';
import { Listener } from './listener.ts';
import { upstreamTransports } from './transports.ts';
import { fullUpstreamStatuses, readiness } from './upstream-status.ts';

/** How long a stopping gateway waits for requests in flight. */
const DRAIN_MS = 60_000;
const DRAIN_POLL_MS = 50;

/** How many ports are tried for the operator if none was configured. */
const OPERATOR_PORTS = 100;

/** A gateway that listens. */
export interface Running {
  /** URL of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** Refuses new requests, waits for those in flight, and closes everything. */
  stop(): Promise<void>;
}

/** The options of {@link serve}. */
export interface ServeOptions {
  /** If set, reads the lists of all upstreams before listening, at most until this promise settles. */
  readonly warmUntil?: Promise<unknown>;
}

/**
 * Starts the gateway and listens.
 *
 * @throws {StartError} if an address cannot be used; another error if the state directory cannot be used.
 */
export async function serve(config: Config, log: Logger, { warmUntil }: ServeOptions = {}): Promise<Running> {
  const metrics = createMetrics(VERSION);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log);
  let isDraining = false;
  const startedAtMs = Date.now();
  const ready = () => (isDraining ? { ready: false, reasons: ['shutting down'] } : readiness(core));
  metrics.configStarted(startedAtMs);
  metrics.onScrape('ready', () => (ready().ready ? 1 : 0));
  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const front = core.gateway;
    const endpoints = createEndpoints({ front, config, log, metrics });
    const listener = await Listener.open(config.listen, 'gateway.listen or --listen', (origin) => {
      const authenticator = createAuthenticator(config.auth, { log });
      return createApp({ front, endpoints, authenticator, config, origin, log, metrics });
    });
    const operatorListener =
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
                ready,
                upstreams: () => fullUpstreamStatuses(core),
              }),
            }),
            config.operatorMayMove ? OPERATOR_PORTS : 1,
          );
    return {
      url: `${listener.origin}/mcp`,
      operatorUrl: operatorListener?.origin,
      stop: async () => {
        isDraining = true;
        endpoints.drain();
        await drain(core);
        await core.stop();
        await Promise.all([listener.close(), operatorListener?.close()]);
      },
    };
  } catch (thrown) {
    await core.stop();
    throw thrown;
  }
}

/** Resolves when no request is in flight, or after the longest wait. */
async function drain(core: Core): Promise<void> {
  const untilMs = performance.now() + DRAIN_MS;
  while (core.inFlightCount > 0 && performance.now() < untilMs) await sleep(DRAIN_POLL_MS);
}

import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { ApiKeys } from '../auth/api-key.ts';
import { createAuthenticator } from '../auth/authenticate.ts';
import type { Config } from '../config/config.ts';
import { isLoopback } from '../config/schema/address.ts';
import type { Setting } from '../config/settings.ts';
import { createApp, createEndpoints } from '../downstream/http/app.ts';
import { createAdminApp } from '../operator/admin/admin-app.ts';
import { createOperatorApp } from '../operator/app.ts';
import { newOperatorToken, removeOperatorFile, writeOperatorFile } from '../store/disk/operator-file.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { createAdminPort } from './admin-port.ts';
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
  /** Returns the settings that the config was made of, with their origin. */
  readonly settings?: () => readonly Setting[];
}

/** The name of the operator who uses the key in the state directory. */
const LOCAL_OPERATOR = 'local';

/**
 * Starts the gateway and listens.
 *
 * @throws {StartError} if an address cannot be used; another error if the state directory cannot be used.
 */
export async function serve(
  config: Config,
  log: Logger,
  { warmUntil, settings = () => [] }: ServeOptions = {},
): Promise<Running> {
  const metrics = createMetrics(VERSION);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log);
  let isStopping = false;
  const draining = { isDraining: false };
  const ready = () => {
    if (isStopping) return { ready: false, reasons: ['shutting down'] };
    if (draining.isDraining) return { ready: false, reasons: ['an operator drains this gateway'] };
    return readiness(core);
  };
  const token = newOperatorToken();
  const operators = new ApiKeys([...config.operatorKeys, { name: LOCAL_OPERATOR, sha256: hash('sha256', token) }]);
  const startedAtMs = Date.now();
  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const front = core.gateway;
    const endpoints = createEndpoints({ front, config, log, metrics });
    const listener = await Listener.open(config.listen, 'gateway.listen or --listen', (origin) => {
      const authenticator = createAuthenticator(config.auth, { log });
      return createApp({ front, endpoints, authenticator, config, origin, log, metrics });
    });
    const url = `${listener.origin}/mcp`;
    const admin = createAdminApp({
      port: createAdminPort({ core, config, settings, log, startedAtMs, url, readiness: ready, draining }),
      operators,
      version: VERSION,
      log,
      onRefused: (reason) => metrics.authFailed(`operator ${reason}`),
      onLimit: (limit) => metrics.limitReached(limit),
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
                isLocal: isLoopback(config.operator?.host ?? ''),
                ready,
                upstreams: () => fullUpstreamStatuses(core),
                admin,
              }),
            }),
            config.operatorMayMove ? OPERATOR_PORTS : 1,
          );
    const keepsFile = operatorListener !== undefined && core.keepsState;
    if (keepsFile) await announce(config, operatorListener.origin, token, startedAtMs, log);
    return {
      url,
      operatorUrl: operatorListener?.origin,
      stop: async () => {
        isStopping = true;
        endpoints.drain();
        await drain(core);
        if (keepsFile) await removeOperatorFile(config.stateDir, token);
        await core.stop();
        await Promise.all([listener.close(), operatorListener?.close()]);
      },
    };
  } catch (thrown) {
    await core.stop();
    throw thrown;
  }
}

/** Writes the file by which the command line finds this gateway. Without it the gateway works all the same. */
async function announce(
  config: Config,
  origin: string,
  token: string,
  startedAtMs: number,
  log: Logger,
): Promise<void> {
  const url = new URL(origin);
  // An address that stands for all addresses is none that a program can connect to.
  if (url.hostname === '0.0.0.0') url.hostname = '127.0.0.1';
  if (url.hostname === '[::]') url.hostname = '[::1]';
  const { stateDir, file: configFile } = config;
  const startedAt = new Date(startedAtMs).toISOString();
  try {
    const content = { url: url.origin, token, pid: process.pid, version: VERSION, configFile, startedAt };
    await writeOperatorFile(stateDir, content);
  } catch (thrown) {
    log.warn(
      { err: thrown, stateDir },
      'the command line cannot find this gateway, because its file cannot be written',
    );
  }
}

/** Resolves when no request is in flight, or after the longest wait. */
async function drain(core: Core): Promise<void> {
  const untilMs = performance.now() + DRAIN_MS;
  while (core.inFlightCount > 0 && performance.now() < untilMs) await sleep(DRAIN_POLL_MS);
}

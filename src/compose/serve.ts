import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { FileWatch } from '../config/file-watch.ts';
import type { Loaded } from '../config/load.ts';
import { StartError } from '../errors.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { createAdminPort } from './admin-port.ts';
import { type Core, startCore } from './core.ts';
import { Edge } from './edge.ts';
import { Reloader } from './reload.ts';
import { upstreamTransports } from './transports.ts';
import { readiness } from './upstream-status.ts';

/** How long a stopping gateway waits for requests in flight. */
const DRAIN_MS = 60_000;
const DRAIN_POLL_MS = 50;

/** A gateway that listens. */
export interface Running {
  /** URL of the merged endpoint. */
  readonly url: string;
  readonly operatorUrl: string | undefined;
  /** Shows and reloads the config. */
  readonly config: ConfigControl;
  /** Refuses new requests, waits for those in flight, and closes everything. */
  stop(): Promise<void>;
}

/** The options of {@link serve}. */
export interface ServeOptions {
  /** If set, reads the lists of all upstreams before listening, at most until this promise settles. */
  readonly warmUntil?: Promise<unknown>;
  /** Loads the config again. If absent, it cannot be reloaded. @throws {ConfigError} */
  readonly load?: () => Loaded;
}

/** The name of the operator who uses the key in the state directory. */
const LOCAL_OPERATOR = 'local';

/**
 * Starts the gateway and listens.
 *
 * @throws {StartError} if an address cannot be used; another error if the state directory cannot be used.
 */
export async function serve(loaded: Loaded, log: Logger, { warmUntil, load }: ServeOptions = {}): Promise<Running> {
  const { config } = loaded;
  const metrics = createMetrics(VERSION);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log);
  let isDraining = false;
  let edge: Edge | undefined;
  const startedAtMs = Date.now();
  const ready = () => (isDraining ? { ready: false, reasons: ['shutting down'] } : readiness(core));
  metrics.configStarted(startedAtMs);
  metrics.onScrape('ready', () => (ready().ready ? 1 : 0));
  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const open = await Edge.open(config, {
      core,
      metrics,
      log,
      startedAtMs,
      readiness: () => (isDraining ? { ready: false, reasons: ['shutting down'] } : readiness(core)),
    });
    edge = open;
    const reloader = new Reloader({
      loaded,
      load: () => {
        if (load === undefined || isDraining)
          throw new StartError('the gateway is shutting down, or was started without a file');
        return load();
      },
      apply: async (next, diff) => {
        const commit = await open.prepare(next);
        const applied = await core.apply(next, diff).catch(async (thrown: unknown) => {
          await commit.abandon();
          throw thrown;
        });
        const moved = commit.apply();
        void Promise.all([applied.drained, moved]).catch((thrown: unknown) =>
          log.error({ err: thrown }, 'drain failed'),
        );
      },
      metrics,
      log,
      onFiles: (files) => void watch?.setFiles(files),
    });
    const onChange = () => void reloader.reload('file');
    const watch = load !== undefined && config.reload.watch ? new FileWatch(onChange) : undefined;
    await watch?.setFiles(loaded.files);
    return {
      get url() {
        return `${open.origin}/mcp`;
      },
      get operatorUrl() {
        return open.operatorOrigin;
      },
      config: reloader,
      stop: async () => {
        isDraining = true;
        watch?.[Symbol.dispose]();
        open.drain();
        await drain(core);
        if (keepsFile) await removeOperatorFile(config.stateDir, token);
        await core.stop();
        await open.close();
      },
    };
  } catch (thrown) {
    await core.stop();
    await edge?.close();
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

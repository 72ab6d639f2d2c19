import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import type { ConfigDiff } from '../config/diff.ts';
import { FileWatch } from '../config/file-watch.ts';
import type { Loaded } from '../config/load.ts';
import { StartError } from '../errors.ts';
import { createAdminApp } from '../operator/admin/admin-app.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import { type Logger, setLogLevel } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { createAdminPort } from './admin-port.ts';
import { type Core, startCore } from './core.ts';
import { Edge } from './edge.ts';
import { lastGoodKeeper } from './last-good-keeper.ts';
import { openTracing } from './open-tracing.ts';
import { OperatorAccess } from './operator-access.ts';
import { Reloader } from './reload.ts';
import { upstreamTransports } from './transports.ts';
import { readiness } from './upstream-status.ts';

/** The time that a stopping gateway waits for requests in flight. */
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
  /** Loads the config again, with the options of the start. @throws {ConfigError} */
  readonly load: () => Loaded;
  /** Loads the config to show the difference. Changes nothing. @throws {ConfigError} */
  readonly preview: () => Loaded;
  /** Keeps a copy of each config that is applied, for a later start with a broken file. */
  readonly keepsLastGood?: boolean;
  /** If set, reads the lists of all upstreams before listening, at most until this promise settles. */
  readonly warmUntil?: Promise<unknown>;
}

/**
 * Starts the gateway and listens.
 *
 * @throws {StartError} if an address cannot be used; another error if the state directory cannot be used.
 */
export async function serve(loaded: Loaded, log: Logger, options: ServeOptions): Promise<Running> {
  const { load, preview, warmUntil, keepsLastGood = false } = options;
  const { config } = loaded;
  const startedAtMs = Date.now();
  const metrics = createMetrics(VERSION);
  const tracing = await openTracing(config, metrics, log);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log, { tracing });
  let isStopping = false;
  const draining = { isDraining: false };
  const ready = () => {
    if (isStopping) return { ready: false, reasons: ['shutting down'] };
    if (draining.isDraining) return { ready: false, reasons: ['an operator drains this gateway'] };
    return readiness(core);
  };
  const { lastGood } = loaded;
  metrics.configStarted(startedAtMs, lastGood === undefined ? undefined : Date.parse(lastGood.savedAt));
  metrics.onScrape('ready', () => (ready().ready ? 1 : 0));

  const keepLastGood = lastGoodKeeper({
    stateDir: config.stateDir,
    isWanted: keepsLastGood,
    ownsState: core.keepsState,
    log,
  });
  const access = new OperatorAccess(config, { startedAtMs, ownsState: core.keepsState, log });
  let edge: Edge | undefined;
  let watch: FileWatch | undefined;
  let { files } = loaded;
  let { logLevel } = config;
  const setWatch = async (isOn: boolean) => {
    if (!isOn) watch?.[Symbol.dispose]();
    watch = isOn ? (watch ?? new FileWatch(() => void reloader.reload('file'))) : undefined;
    await watch?.setFiles(files);
  };
  const apply = async (next: Config, diff: ConfigDiff) => {
    if (edge === undefined) throw new StartError('the gateway is starting');
    const change = await edge.prepare(next);
    const applied = await core.apply(next, diff).catch(async (thrown: unknown) => {
      await change.abandon();
      throw thrown;
    });
    const moved = change.apply();
    access.setConfig(next);
    // The level that an operator has set stays until the file has another one.
    if (next.logLevel !== logLevel) setLogLevel(log, next.logLevel);
    ({ logLevel } = next);
    await Promise.all([access.announce(edge.operatorOrigin), setWatch(next.reload.watch)]);
    void Promise.all([applied.drained, moved]).catch((thrown: unknown) => log.error({ err: thrown }, 'drain failed'));
  };
  const reloader = new Reloader({
    loaded,
    load: () => {
      if (isStopping) throw new StartError('the gateway is shutting down');
      return load();
    },
    preview,
    apply,
    metrics,
    log,
    onApplied: keepLastGood,
    onFiles: (next) => {
      files = next;
      void watch?.setFiles(files);
    },
  });
  const url = () => `${edge?.origin ?? ''}/mcp`;
  const admin = createAdminApp({
    port: createAdminPort({
      core,
      control: reloader,
      stateDir: config.stateDir,
      log,
      startedAtMs,
      url,
      readiness: ready,
      draining,
    }),
    operators: () => access.keys,
    version: VERSION,
    log,
    onRefused: (reason) => metrics.authFailed(`operator ${reason}`),
    onLimit: (limit) => metrics.limitReached(limit),
  });

  try {
    if (warmUntil !== undefined) await Promise.race([core.refresh(), warmUntil]);
    const open = await Edge.open(config, { core, metrics, log, startedAtMs, ready, control: reloader, admin });
    edge = open;
    await access.announce(open.operatorOrigin);
    await setWatch(config.reload.watch);
    await keepLastGood(loaded);
    return {
      get url() {
        return url();
      },
      get operatorUrl() {
        return open.operatorOrigin;
      },
      config: reloader,
      stop: async () => {
        isStopping = true;
        watch?.[Symbol.dispose]();
        open.drain();
        await drain(core);
        await access.withdraw();
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

/** Resolves when no request is in flight, or after the longest wait. */
async function drain(core: Core): Promise<void> {
  const untilMs = performance.now() + DRAIN_MS;
  while (core.inFlightCount > 0 && performance.now() < untilMs) await sleep(DRAIN_POLL_MS);
}

import { isAuthRequired } from '../config/auth-required.ts';
import { type ListeningGateway, serve } from '../compose/serve.ts';
import { isExpected } from '../telemetry/log-error.ts';
import { startsWithGateway } from '../config/values/upstream-config.ts';
import { VERSION } from '../version.ts';
import { passOnHeldSignals } from './held-signals.ts';
import { listenForSignals } from './signals.ts';
import { start, type StartOptions } from './start.ts';

/** The exit code after a second signal. */
const FORCED = 130;

/** The command-line options of `run`. */
export interface RunOptions extends StartOptions {
  /** Fetches the lists of all upstreams before listening. */
  readonly warm: boolean;
}

/**
 * Serves until a signal asks to stop. A later second signal ends the process at once. Resolves with the exit code.
 *
 * @throws {ConfigError} if the config file cannot be used.
 */
export async function run(options: RunOptions): Promise<number> {
  const { config, loaded, log, load, preview } = await start('run', options);
  const signals = listenForSignals(log);

  const started = Promise.withResolvers<ListeningGateway>();
  // Signals that come earlier have their effect after the start.
  signals.onReload(() => void started.promise.then((gateway) => gateway.config.reload('signal')));
  signals.onRotateKeys(() => {
    const rotated = started.promise.then((gateway) => gateway.rotateKeys());
    rotated.catch((err: unknown) => log.error({ err }, 'the sealing key could not be replaced'));
  });
  passOnHeldSignals();
  let shown: unknown;
  const showFailure = (thrown: unknown): void => {
    if (thrown === shown) return;
    shown = thrown;
    if (isExpected(thrown) && thrown instanceof Error) log.fatal({ reason: thrown.message }, 'cannot start');
    else log.fatal({ err: thrown }, 'cannot start');
  };
  let running: ListeningGateway | undefined;
  try {
    const keepsLastGood = options.lastGood ?? false;
    const untilReady = options.warm ? { warmUntil: signals.stop } : {};
    const how = { load, preview, keepsLastGood, onFailed: showFailure, ...untilReady };
    const starting = config.workers === 1 ? serve(loaded, log, how) : serveByWorkers(loaded, log, how);
    running = await Promise.race([starting, signals.force.then(() => undefined)]);
  } catch (thrown) {
    showFailure(thrown);
    return 1;
  }
  if (running === undefined) {
    log.info({ code: FORCED }, 'stopped');
    return FORCED;
  }
  const { url, operatorUrl, lockSummary: lock } = running;
  started.resolve(running);
  const wanted = config.operator?.port;
  if (operatorUrl !== undefined && wanted !== 0 && Number(new URL(operatorUrl).port) !== wanted) {
    log.warn({ wanted, operatorUrl }, "the operator's port is in use, so the next free one is taken");
  }
  const auth = isAuthRequired(config.auth);
  const upstreams = config.upstreams.map(({ id }) => id);
  const lastGoodAt = loaded.lastGood?.savedAt;
  // Without authentication all clients are one principal.
  const { sessions, sessionsPerPrincipal } = config.limits;
  const sessionsOfAllClients = auth ? undefined : Math.min(sessions, sessionsPerPrincipal);
  const eager = config.upstreams.filter((one) => options.warm || startsWithGateway(one)).map(({ id }) => id);
  log.info(
    { version: VERSION, url, operatorUrl, upstreams, eager, auth, sessionsOfAllClients, lastGoodAt, lock },
    'listening',
  );

  const signal = await signals.stop;
  log.info({ signal }, 'stopping');
  const stopped = running.stop().then(() => 0);
  const code = await Promise.race([stopped, signals.force.then(() => FORCED)]);
  if (code === FORCED) {
    const requests = running.inFlightCount();
    log.warn({ requests }, 'stopped at once: requests in flight have no answer, and what was not written yet is lost');
  }
  log.info({ code }, 'stopped');
  return code;
}

/** Loads nothing of workers for a gateway of one process. */
async function serveByWorkers(...args: Parameters<typeof serve>): Promise<ListeningGateway> {
  const { serveWorkers } = await import('../compose/workers/parent.ts');
  return await serveWorkers(...args);
}

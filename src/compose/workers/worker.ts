import { messageOf } from '../../thrown.ts';
import { ConfigError } from '../../config/document/problem.ts';
import type { Loaded } from '../../config/load.ts';
import { StartError } from '../../errors.ts';
import { processPipe } from '../../store/piped/pipe.ts';
import { PipeCalls } from '../../store/piped/pipe-calls.ts';
import { createLogger } from '../../telemetry/log.ts';
import { serve } from '../serve.ts';
import { PARENT, WORKER, type WorkerSetup } from './methods.ts';
import { serveAdmin } from './worker-admin.ts';

/**
 * Serves clients as one of the workers of the process that has started this one, until that process asks to stop or ends. Resolves when the pipe to it is closed.
 *
 * @throws {StartError} if this process was not started by a parent.
 */
export async function runWorker(): Promise<void> {
  if (!process.connected) throw new StartError('a worker is started by "linkspan run", not by hand');
  const gone = Promise.withResolvers<void>();
  const warmUp = Promise.withResolvers<void>();
  process.once('disconnect', () => {
    gone.resolve();
    warmUp.resolve();
  });
  // The parent decides. A terminal sends its signals to this process too.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR2'] as const) process.on(signal, () => undefined);
  const calls = new PipeCalls(processPipe(process), () => undefined);
  calls.serve(WORKER.endWarmUp, async () => warmUp.resolve());
  const setup = await calls.call(PARENT.setup, undefined);
  const log = createLogger(setup.changes.logLevel, undefined, { format: 'json', requests: setup.requests });
  let running: Awaited<ReturnType<typeof serve>>;
  try {
    running = await serve(loadedOf(setup), log, {
      load: async () => loadedOf(setup),
      preview: async () => loadedOf(setup),
      ...(setup.warm ? { warmUntil: warmUp.promise } : {}),
      worker: { calls, setup },
    });
  } catch (thrown) {
    const isExpected = thrown instanceof StartError || thrown instanceof ConfigError;
    if (!isExpected) log.error({ err: thrown }, 'a worker cannot start');
    await calls.call(PARENT.failed, messageOf(thrown));
    return;
  }
  const { inside } = running;
  calls.serve(WORKER.ping, async () => undefined);
  calls.serve(WORKER.readiness, async () => {
    const { ready, reasons } = inside.readiness();
    return { ready, reasons: [...reasons] };
  });
  calls.serve(WORKER.metrics, () => inside.metrics.text());
  calls.serve(WORKER.prepare, (config) => inside.prepare(config));
  calls.serve(WORKER.apply, () => inside.apply());
  calls.serve(WORKER.abandon, () => inside.abandon());
  calls.serve(WORKER.stop, () => running.stop());
  serveAdmin(calls, inside.admin);
  await calls.call(PARENT.listening, { url: running.url, lockSummary: running.lockSummary });
  await gone.promise;
}

/** Returns a loaded config that has no file. */
function loadedOf({ config }: WorkerSetup): Loaded {
  const none = { warnings: [], problems: [], disabled: [], settings: () => [], copy: undefined };
  return { config, ...none, files: new Map(), lockFile: '' };
}

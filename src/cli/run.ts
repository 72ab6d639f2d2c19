import type { Running } from '../compose.ts';
import { compose } from '../compose.ts';
import { loadConfig } from '../config/load.ts';
import { createLogger } from '../telemetry/log.ts';
import { VERSION } from '../version.ts';

export interface RunOptions {
  readonly config: string;
  readonly listen?: string;
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/**
 * Serves until told to stop; a second signal ends it at once. Resolves with the exit code.
 *
 * @throws {ConfigError}
 */
export async function run(options: RunOptions): Promise<number> {
  const { listen } = options;
  const { config, warnings } = loadConfig(options.config, {
    env: process.env,
    ...(listen === undefined ? {} : { listen }),
  });
  const log = createLogger(config.logLevel);
  for (const warning of warnings) log.warn({ file: config.file }, warning);

  let running: Running;
  try {
    running = await compose(config, log);
  } catch (thrown) {
    log.fatal({ err: thrown }, 'cannot start');
    return 1;
  }
  const { url, operatorUrl } = running;
  log.info({ version: VERSION, url, operatorUrl, upstreams: config.upstreams.map(({ id }) => id) }, 'listening');

  const signal = await new Promise<string>((resolve) => {
    for (const name of SIGNALS) process.once(name, resolve);
  });
  log.info({ signal }, 'stopping');
  const forced = new Promise<number>((resolve) => {
    for (const name of SIGNALS) process.once(name, () => resolve(130));
  });
  const stopped = running.stop().then(() => 0);
  const code = await Promise.race([stopped, forced]);
  log.info({ code }, 'stopped');
  return code;
}

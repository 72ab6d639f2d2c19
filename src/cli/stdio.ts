import { composeCore, upstreamTransports } from '../compose.ts';
import { loadConfig } from '../config/load.ts';
import { serveStdio } from '../downstream/stdio.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';

/**
 * Serves the one client that started us, over stdin and stdout, until it hangs up. Opens no port. Resolves with the exit code.
 *
 * @throws {ConfigError}
 */
export async function stdio(options: { readonly config: string }): Promise<number> {
  const { config, warnings } = loadConfig(options.config, { env: process.env });
  const log = createLogger(config.logLevel);
  for (const warning of warnings) log.warn({ file: config.file }, warning);

  const metrics = createMetrics(VERSION);
  const core = await composeCore(config, metrics, upstreamTransports(config, metrics, log), log, {
    // Its one session ends with it. A gateway that serves many clients is the owner, whenever it starts.
    mayOwnState: false,
  });
  const hungUp = serveStdio(core.gateway, '', { input: process.stdin, output: process.stdout }, log);
  const told = new Promise<void>((resolve) => {
    process.once('SIGINT', resolve).once('SIGTERM', resolve);
  });
  await Promise.race([hungUp, told]);
  await core.stop();
  return 0;
}

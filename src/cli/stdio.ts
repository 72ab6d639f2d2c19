import { startCore } from '../compose/core.ts';
import { upstreamTransports } from '../compose/transports.ts';
import { serveStdio } from '../downstream/stdio.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { listenForSignals } from './signals.ts';
import { start, type StartOptions } from './start.ts';

/**
 * Serves the one client that started us, over stdin and stdout, until it hangs up. Opens no port. Resolves with the exit code.
 *
 * @throws {ConfigError}
 */
export async function stdio(options: StartOptions): Promise<number> {
  const { config, log } = start('stdio', options);
  const signals = listenForSignals(log);

  const metrics = createMetrics(VERSION);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log, {
    // Its one session ends with it. A gateway that serves many clients is the owner, whenever it starts.
    mayOwnState: false,
    clientTransport: 'pipe',
  });
  const hungUp = serveStdio(core.gateway, '', { input: process.stdin, output: process.stdout }, log);
  await Promise.race([hungUp, signals.stop]);
  return await Promise.race([core.stop().then(() => 0), signals.force.then(() => 130)]);
}

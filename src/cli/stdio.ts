import { startCore } from '../compose/start-core.ts';
import { openAuditLog } from '../compose/open-audit-log.ts';
import { openTracing } from '../compose/open-tracing.ts';
import { upstreamTransports } from '../compose/transports.ts';
import { serveStdio } from '../downstream/stdio.ts';
import { StartError } from '../errors.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { within, WITHIN } from '../upstream/stdio/launch/nesting.ts';
import { VERSION } from '../version.ts';
import { listenForSignals } from './signals.ts';
import { start, type StartOptions } from './start.ts';

/** The time in which a client may read the last answers after a signal. */
const LAST_READ_MS = 1_000;

/**
 * Serves the client that started us, over stdin and stdout, until it closes them. Opens no port. Resolves with the exit code.
 *
 * @throws {ConfigError} if the config file cannot be used.
 * @throws {StartError} if the audit log cannot be used, or a gateway with the same file has started this one.
 */
export async function stdio(options: StartOptions): Promise<number> {
  const { config, log } = await start('stdio', options);
  process.env[WITHIN] = within(config.file, process.env[WITHIN]);
  const { audit: records } = config;
  if (records !== undefined && records.file === undefined && records.otlp === undefined) {
    throw new StartError(
      'gateway.audit.stdout: stdout belongs to the client here; set gateway.audit.file or gateway.audit.otlp instead',
    );
  }
  const signals = listenForSignals(log);

  const metrics = createMetrics(VERSION);
  const audit = (await openAuditLog(config, metrics, log))?.trail;
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log, {
    // Our only session ends with this process. The state directory is left to a gateway that serves many clients.
    mayOwnState: false,
    clientTransport: 'pipe',
    tracing: await openTracing(config, metrics, log),
    audit,
  });
  const streams = { input: process.stdin, output: process.stdout };
  const closed = serveStdio(core.gateway, '', streams, log, (limit) => metrics.countLimit(limit));
  await Promise.race([closed, signals.stop]);
  void signals.force.then(() => process.exit(130));
  await core.stop();
  await audit?.close();
  // The process ends when the client has read everything. One that reads nothing would keep it from ending.
  void signals.stop.then(() => setTimeout(() => process.exit(0), LAST_READ_MS));
  return 0;
}

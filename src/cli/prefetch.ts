import { startCore } from '../compose/core.ts';
import { upstreamTransports } from '../compose/transports.ts';
import { upstreamStatuses } from '../compose/upstream-status.ts';
import type { UpstreamStatus } from '../operator/status.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { start, type StartOptions } from './start.ts';

/**
 * Starts every upstream once and stores its lists in the state directory, so that the first client of a later start does not
 * wait for them. Resolves with the exit code: 1 if an upstream could not be listed, or the lists cannot be stored.
 *
 * @throws {ConfigError}
 */
export async function prefetch(options: StartOptions): Promise<number> {
  const { config, log } = await start('stdio', options);
  const metrics = createMetrics(VERSION);
  const core = await startCore(config, metrics, await upstreamTransports(config, metrics, log), log);
  try {
    if (!core.keepsState) {
      process.stderr.write(
        `a running gateway uses ${config.stateDir} and fetches the lists itself; nothing was done\n`,
      );
      return 1;
    }
    await core.refresh();
    const status = upstreamStatuses(core);
    process.stdout.write(status.map((upstream) => `${statusLine(upstream)}\n`).join(''));
    return status.every(({ state }) => state === 'ready') ? 0 : 1;
  } finally {
    await core.stop();
  }
}

function statusLine({ id, state, reason, tools, prompts, resources }: UpstreamStatus): string {
  if (state !== 'ready') return `${id}: FAILED ${reason ?? state}`;
  return `${id}: ${tools} tools, ${prompts} prompts, ${resources} resources`;
}

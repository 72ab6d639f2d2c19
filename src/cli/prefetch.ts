import { startCore } from '../compose/start-core.ts';
import { upstreamTransports } from '../compose/transports.ts';
import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import type { UpstreamStatus } from '../operator/admin/answers.ts';
import { lockState } from '../store/disk/state-lock.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { countText, print, printError } from './operator/output.ts';
import { start, type StartOptions } from './start.ts';
import { isLeftToCallers, LEFT_TO_CALLERS, startOnce } from './trial-start.ts';

/** Programs may take this long to start, or as long as the config says, because npx and uvx download packages first. */
const START_MS = 300_000;

/**
 * Starts every upstream once and stores its lists in the state directory. So the first client of a later start does not wait for them. If a
 * gateway runs, it stores the lists itself; then only packages are downloaded. Replicas do not read the lists of the directory. Resolves
 * with the exit code: 1 if an upstream could not be listed.
 *
 * @throws {ConfigError}
 */
export async function prefetch(options: StartOptions): Promise<number> {
  const { config: configured, log } = await start('stdio', options);
  const config = { ...configured, upstreams: configured.upstreams.map(withPatience) };
  const metrics = createMetrics(VERSION);
  // The directory is left to a gateway that starts meanwhile. One that cannot be written is refused here.
  const lock = await lockState(config.stateDir);
  await lock?.release();
  const transports = await upstreamTransports(config, metrics, log);
  const core = await startCore(config, metrics, transports, log, { mayOwnState: false });
  try {
    if (lock === undefined) {
      printError(
        `a running gateway uses ${config.stateDir} and stores the lists itself; each upstream is started once beside it\n`,
      );
    }
    if (config.redis !== undefined) {
      printError(
        `replicas keep the lists in Redis (gateway.redis), and do not read those that this command stores in ${config.stateDir}\n`,
      );
    }
    const status = await startOnce(core);
    const lines = status.map((one) =>
      isLeftToCallers(config, one) ? `${one.id}: ${LEFT_TO_CALLERS}` : statusLine(one),
    );
    print(lines.map((line) => `${line}\n`).join(''));
    return status.every((one) => one.state === 'ready' || isLeftToCallers(config, one)) ? 0 : 1;
  } finally {
    await core.stop();
  }
}

function withPatience(upstream: UpstreamConfig): UpstreamConfig {
  const { target, timeouts } = upstream;
  if (target.kind !== 'stdio') return upstream;
  return { ...upstream, timeouts: { ...timeouts, startMs: Math.max(timeouts.startMs, START_MS) } };
}

function statusLine({ id, state, reason, tools, prompts, resources }: UpstreamStatus): string {
  if (state !== 'ready') return `${id}: FAILED ${reason ?? state}`;
  return `${id}: ${countText(tools, 'tool')}, ${countText(prompts, 'prompt')}, ${countText(resources, 'resource')}`;
}

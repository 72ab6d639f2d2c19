import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { composeCore, upstreamTransports } from '../compose.ts';
import type { Config } from '../config/config.ts';
import type { UpstreamStatus } from '../operator/status.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';

/**
 * Starts every upstream once, asks for its lists, and ends it again. Opens no port and leaves the state directory alone.
 * Returns how each did, in the order of the config.
 */
export async function startOnce(config: Config): Promise<readonly UpstreamStatus[]> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-validate-'));
  try {
    const log = createLogger('silent');
    const metrics = createMetrics(VERSION);
    const core = await composeCore(
      { ...config, stateDir },
      metrics,
      await upstreamTransports(config, metrics, log),
      log,
    );
    try {
      await core.refresh();
      // One that failed is already being started again.
      return core.status().map((one) => (one.state === 'starting' ? { ...one, state: 'failed' } : one));
    } finally {
      await core.stop();
    }
  } finally {
    await rm(stateDir, { recursive: true, force: true });
  }
}

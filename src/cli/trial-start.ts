import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { startCore } from '../compose/core.ts';
import { upstreamTransports } from '../compose/transports.ts';
import { upstreamStatuses } from '../compose/upstream-status.ts';
import type { Config } from '../config/config.ts';
import type { UpstreamStatus } from '../operator/status.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';

/**
 * Starts every upstream once, reads its lists, and stops it again. Opens no port and does not use the state directory.
 * Resolves with the status of each upstream, in the order of the config.
 */
export async function listOnce(config: Config): Promise<readonly UpstreamStatus[]> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-validate-'));
  try {
    const log = createLogger('silent');
    const metrics = createMetrics(VERSION);
    const transports = await upstreamTransports(config, metrics, log);
    const core = await startCore({ ...config, stateDir }, metrics, transports, log);
    try {
      await core.refresh();
      // An upstream that failed is already being started again.
      return upstreamStatuses(core).map((one) => (one.state === 'starting' ? { ...one, state: 'failed' } : one));
    } finally {
      await core.stop();
    }
  } finally {
    await rm(stateDir, { recursive: true, force: true });
  }
}

import type { AdminPort } from '../../operator/admin/admin-port.ts';
import type { Readiness } from '../../operator/app.ts';
import { setLogLevel } from '../../telemetry/log.ts';
import { logLevelOf, processControls, type ProcessSource } from '../admin/process-controls.ts';
import type { MergedAdmin } from './merged-admin.ts';

export interface ParentAdminParts extends ProcessSource {
  readonly workers: MergedAdmin['port'];
  readonly readiness: () => Promise<Readiness>;
}

/**
 * Creates the admin API's view of a gateway with workers. It makes one answer of theirs, and has the config, the log and the readiness of
 * the parent.
 */
export function parentAdmin(parts: ParentAdminParts): AdminPort {
  const { workers, control, log, startedAtMs, stateDir, readiness, phase } = parts;
  return {
    ...workers,
    status: async () => {
      const [status, { ready, reasons }] = await Promise.all([workers.status(), readiness()]);
      return {
        ...status,
        pid: process.pid,
        startedAt: new Date(startedAtMs).toISOString(),
        config: control.state,
        stateDir,
        isReady: ready,
        reasons: [...reasons],
        isDraining: phase.isDraining,
        memoryBytes: status.memoryBytes + process.memoryUsage.rss(),
      };
    },
    get logLevel() {
      return logLevelOf(log);
    },
    setLogLevel: (level) => {
      setLogLevel(log, level);
      return workers.setLogLevel(level);
    },
    ...processControls(parts),
  };
}

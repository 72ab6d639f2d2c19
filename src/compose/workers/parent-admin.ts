import type { AdminPort } from '../../operator/admin/admin-port.ts';
import { stateOf } from '../../operator/admin/config-answers.ts';
import type { ConfigControl } from '../../operator/config-control.ts';
import { type Logger, setLogLevel } from '../../telemetry/log.ts';
import { logLevelOf, processControls } from '../admin/process-controls.ts';
import type { MergedAdmin } from './merged-admin.ts';

export interface ParentAdminParts {
  readonly workers: MergedAdmin;
  readonly control: ConfigControl;
  readonly log: Logger;
  readonly startedAtMs: number;
  readonly stateDir: string;
  readonly readiness: () => Promise<{ readonly ready: boolean; readonly reasons: readonly string[] }>;
  /** `isDraining` is true if `/readyz` refuses new clients. */
  readonly draining: { isDraining: boolean };
}

/** Creates the admin API's view of a gateway with workers: their answers as one, and the config, the log and the readiness of the parent. */
export function parentAdmin(parts: ParentAdminParts): AdminPort {
  const { workers, control, log, startedAtMs, stateDir, readiness, draining } = parts;
  return {
    status: async () => {
      const [status, { ready, reasons }] = await Promise.all([workers.status(), readiness()]);
      return {
        ...status,
        pid: process.pid,
        startedAt: new Date(startedAtMs).toISOString(),
        config: stateOf(control),
        stateDir,
        isReady: ready,
        reasons: [...reasons],
        isDraining: draining.isDraining,
        memoryBytes: status.memoryBytes + process.memoryUsage.rss(),
      };
    },
    upstreams: () => workers.upstreams(),
    catalog: (query) => workers.catalog(query),
    explain: (request) => workers.explain(request),
    clients: () => workers.clients(),
    sessions: () => workers.sessions(),
    streams: () => workers.streams(),
    calls: () => workers.calls(),
    restartUpstream: (id, drainMs) => workers.restartUpstream(id, drainMs),
    disableUpstream: (id, drainMs) => workers.disableUpstream(id, drainMs),
    endSession: (digest) => workers.endSession(digest),
    rotateKeys: (graceMs) => workers.rotateKeys(graceMs),
    get logLevel() {
      return logLevelOf(log);
    },
    setLogLevel: (level) => {
      setLogLevel(log, level);
      return workers.setLogLevel(level);
    },
    callTool: (operator, call, signal) => workers.callTool(operator, call, signal),
    ...processControls(parts),
  };
}

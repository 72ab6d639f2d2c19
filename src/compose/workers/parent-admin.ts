import type { AdminPort } from '../../operator/admin/admin-port.ts';
import type { Readiness } from '../../operator/app.ts';
import { setLogLevel } from '../../telemetry/log.ts';
import { logLevelOf, processControls, type ProcessSource } from '../admin/process-controls.ts';
import type { MergedAdmin } from './merged-admin.ts';

export interface ParentAdminParts extends ProcessSource {
  readonly workers: MergedAdmin;
  readonly readiness: () => Promise<Readiness>;
}

/**
 * Creates the admin API's view of a gateway with workers. It makes one answer of theirs, and has the config, the log and the readiness of
 * the parent.
 */
export function parentAdmin(parts: ParentAdminParts): AdminPort {
  const { workers, control, log, startedAtMs, stateDir, readiness, phase } = parts;
  return {
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

import type { AuditTrail } from '../../audit/audit-trail.ts';
import type { PipedAuditSettings } from '../../audit/audit-pipe.ts';
import type { Config } from '../../config/values/config.ts';
import type { PipeCalls } from '../../store/piped/pipe-calls.ts';
import type { Logger } from '../../telemetry/log.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { openAuditLog } from '../open-audit-log.ts';

/** The audit log of a gateway with workers: one chain, which the parent writes. */
export interface ParentAudit extends AsyncDisposable {
  readonly trail: AuditTrail;
  readonly forWorkers: PipedAuditSettings;
  /** Takes the records of a worker. */
  serve(calls: PipeCalls): void;
}

/**
 * Opens the audit log if the config has one. Loads nothing of it otherwise.
 *
 * @throws {StartError} if another process writes the log, or the system refuses it.
 */
export async function openParentAudit(config: Config, metrics: Metrics, log: Logger): Promise<ParentAudit | undefined> {
  const { audit, workers } = config;
  const opened = await openAuditLog(config, metrics, log);
  if (audit === undefined || opened === undefined) return undefined;
  const { serveAudit } = await import('../../audit/audit-pipe.ts');
  const { trail, log: records, digests } = opened;
  const { required, arguments: recorded, recordBytes } = audit;
  const queueBytes = Math.max(recordBytes, Math.floor(audit.queueBytes / workers));
  return {
    trail,
    forWorkers: { required, arguments: recorded, recordBytes, digests, queueBytes },
    serve: (calls) => serveAudit(calls, records),
    [Symbol.asyncDispose]: () => trail.close(),
  };
}

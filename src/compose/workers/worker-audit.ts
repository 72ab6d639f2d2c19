import type { AuditTrail } from '../../audit/audit-trail.ts';
import type { Logger } from '../../telemetry/log.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { WorkerSide } from './worker-replicas.ts';

/** Opens the audit log of the parent for this worker, if there is one. Loads nothing of it otherwise. */
export async function openWorkerAudit(
  { calls, setup }: WorkerSide,
  metrics: Metrics,
  log: Logger,
): Promise<AuditTrail | undefined> {
  const { audit } = setup;
  if (audit === undefined) return undefined;
  const [{ PipedAuditLog }, { AuditTrail: Trail }] = await Promise.all([
    import('../../audit/piped-audit-log.ts'),
    import('../../audit/audit-trail.ts'),
  ]);
  const records = new PipedAuditLog({
    calls,
    queueBytes: audit.queueBytes,
    recordBytes: audit.recordBytes,
    onLost: (lost) => log.error({ lost }, 'audit records are lost: the parent has not taken them before the end'),
  });
  // The number of the last record and failures are those of the parent.
  metrics.onScrape('auditQueueBytes', () => records.queuedBytes);
  return new Trail(records, { digests: audit.digests }, audit);
}

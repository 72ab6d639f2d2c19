import type { Registry } from 'prom-client';
import { knownCounter, readGauge } from './metric-kinds.ts';

/** `written`: in the file. `dropped`: the queue was full. `failed`: an attempt to write that failed; its records are written later. */
const AUDIT_OUTCOMES = ['written', 'dropped', 'failed'] as const;

/** The state of an audit log at a scrape. */
export interface AuditLevels {
  /** Number of the last record. */
  readonly seq: number;
  readonly queuedBytes: number;
  readonly isFailing: boolean;
}

/** Records what becomes of audit records. */
export type AuditMetrics = ReturnType<typeof createAuditMetrics>;

export function createAuditMetrics(registry: Registry) {
  let log: AuditLevels | undefined;
  const gauge = (name: string, help: string, read: (log: AuditLevels) => number) =>
    readGauge(registry, name, help, () => (log === undefined ? 0 : read(log)));
  gauge('linkspan_audit_sequence', 'Number of the last record of the audit log.', ({ seq }) => seq);
  gauge(
    'linkspan_audit_queue_bytes',
    'Bytes of records that wait for being written.',
    ({ queuedBytes }) => queuedBytes,
  );
  gauge('linkspan_audit_failing', '1 while the audit log cannot be written, else 0.', ({ isFailing }) =>
    isFailing ? 1 : 0,
  );
  return {
    countAuditRecords: knownCounter(registry, {
      name: 'linkspan_audit_records_total',
      help: 'Records of the audit log by outcome.',
      values: AUDIT_OUTCOMES,
    }),
    /** Sets the audit log whose state is read at each scrape. */
    readAudit: (next: AuditLevels) => {
      log = next;
    },
  };
}

import type { AuditEvent } from './audit-event.ts';

/** Takes records for the audit log: it writes them itself, or sends them to the process that does. */
export interface AuditWriter {
  /** True while records cannot be written. */
  readonly isFailing: boolean;
  /** Adds a record. Never throws: a record that finds no room is counted. */
  record(event: AuditEvent): void;
  /**
   * Adds a record, and waits until it is written. Resolves with its number.
   *
   * @throws {GatewayError} `audit-unavailable` if that fails, or takes longer than 5 s.
   */
  commit(event: AuditEvent): Promise<number>;
  /** Writes or sends all records, and releases the log. Never rejects. */
  close(): Promise<void>;
}

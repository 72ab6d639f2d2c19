import type { OpenedAudit } from '../audit/open-audit.ts';
import type { Config } from '../config/values/config.ts';
import type { Logger } from '../telemetry/log.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';

/**
 * Opens the audit log if the config has one. Loads nothing of it otherwise.
 *
 * @param replica the name of this process; undefined if there is no other one.
 * @throws {StartError} if another process writes the log, or the system refuses it.
 */
export async function openAuditLog(
  { audit, stateDir, egress }: Config,
  metrics: Metrics,
  log: Logger,
  replica?: string,
): Promise<OpenedAudit | undefined> {
  if (audit === undefined) return undefined;
  const { openAudit } = await import('../audit/open-audit.ts');
  return await openAudit(audit, stateDir, { version: VERSION, replica, egress }, metrics, log);
}

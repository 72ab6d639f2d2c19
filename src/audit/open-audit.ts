import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { AuditConfig } from '../config/values/config.ts';
import type { EgressConfig } from '../config/values/credentials.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Logger } from '../telemetry/log.ts';
import { AuditLog, type AuditLogEvents } from './audit-log.ts';
import type { AuditSink } from './audit-sink.ts';
import { AuditTrail } from './audit-trail.ts';
import { type AuditKey, auditKeyOf } from './chain.ts';
import { FileSink } from './file-sink.ts';
import { openKeyFile } from './key-file.ts';
import { OtlpSink } from './otlp-sink.ts';
import { StdoutSink } from './stdout-sink.ts';

/** The process that writes an audit log. */
export interface AuditedProcess {
  readonly version: string;
  /** The name of the replica; undefined if there is no other one. */
  readonly replica?: string | undefined;
  /** The settings of connections to a receiver of records. */
  readonly egress?: EgressConfig | undefined;
}

/** An audit log that this process writes. */
export interface OpenedAudit {
  readonly trail: AuditTrail;
  /** The log of the trail, for records of other processes. */
  readonly log: AuditLog;
  /** The key of the digests of arguments. */
  readonly digests: string;
}

/**
 * Opens the audit log of a config, and continues its chain.
 *
 * @throws {StartError} if another process writes it, or the system refuses to open it; another error if the key file cannot be used.
 */
export async function openAudit(
  config: AuditConfig,
  stateDir: string,
  auditedProcess: AuditedProcess,
  metrics: Pick<Metrics, 'countAuditRecords' | 'onScrape'>,
  log: Logger,
): Promise<OpenedAudit> {
  const secrets = config.keys.length > 0 ? config.keys : [await openKeyFile(stateDir)];
  const keys = secrets.map(auditKeyOf);
  const [key] = keys;
  if (key === undefined) throw new RangeError('an audit log needs a key');
  const { version, replica } = auditedProcess;
  const place = config.file ?? (config.otlp === undefined ? 'stdout' : 'otlp');
  const sink = await openSink(config, stateDir, keys, auditedProcess);
  const { seq, headSeq, cutBytes, isForged } = sink.found;
  const auditLog = await AuditLog.open({
    sink,
    key,
    settings: config,
    process: { version, host: hostname(), pid: process.pid, ...(replica === undefined ? {} : { replica }) },
    events: eventsOf(place, metrics, log),
  });
  if (isForged || headSeq > seq) {
    log.error(
      { audit: place, seq, headSeq, isForged },
      'audit records of an earlier process are missing or were changed',
    );
  } else if (cutBytes > 0) {
    log.warn({ audit: place, cutBytes }, 'an unfinished audit record was removed');
  }
  metrics.onScrape('auditSeq', () => auditLog.seq);
  metrics.onScrape('auditQueueBytes', () => auditLog.queuedBytes);
  metrics.onScrape('auditFailing', () => (auditLog.isFailing ? 1 : 0));
  const first = { audit: place, seq: auditLog.seq, mac: auditLog.mac };
  if (seq === 0 && headSeq === 0) log.info(first, 'audit log begins here');
  else log.info(first, 'audit log continues here');
  return { trail: new AuditTrail(auditLog, key, config), log: auditLog, digests: key.digests };
}

function openSink(
  { file, otlp, maxBytes, maxFiles }: AuditConfig,
  stateDir: string,
  keys: readonly AuditKey[],
  { version, replica, egress }: AuditedProcess,
): Promise<AuditSink> {
  if (file !== undefined) return FileSink.open(file, { maxBytes, maxFiles }, keys);
  if (otlp === undefined) return StdoutSink.open(stateDir, keys);
  const resource = {
    'service.name': 'linkspan',
    'service.version': version,
    'service.instance.id': replica ?? randomUUID(),
    'host.name': hostname(),
  };
  return OtlpSink.open(stateDir, keys, { receiver: otlp, egress, resource, maxBytes });
}

function eventsOf(audit: string, metrics: Pick<Metrics, 'countAuditRecords'>, log: Logger): AuditLogEvents {
  return {
    onWritten: (count) => metrics.countAuditRecords('written', count),
    onDropped: (count) => metrics.countAuditRecords('dropped', count),
    onFailed: () => metrics.countAuditRecords('failed', 1),
    onFailing: (error) => log.error({ err: error, audit }, 'audit log cannot be written'),
    onRecovered: (dropped) => log.warn({ audit, dropped }, 'audit log can be written again'),
    onLost: (count) => {
      metrics.countAuditRecords('dropped', count);
      log.error({ audit, lost: count }, 'audit records are lost: they could not be written before the end');
    },
    onReplaced: () => log.error({ audit }, 'audit file was removed or replaced; another one is begun'),
  };
}

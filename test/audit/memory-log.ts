import { randomBytes } from 'node:crypto';
import { AuditLog, type AuditLogSettings } from '../../src/audit/audit-log.ts';
import type { AuditSink } from '../../src/audit/audit-sink.ts';
import { auditKeyOf } from '../../src/audit/chain.ts';

export const KEY = auditKeyOf(randomBytes(32).toString('base64url'));
export const SETTINGS: AuditLogSettings = { sync: 'second', queueBytes: 1_048_576, recordBytes: 16_384 };

/** An audit log, and the lines that it has written. */
export interface MemoryLog {
  readonly log: AuditLog;
  readonly lines: readonly string[];
  /** The numbers of records that were dropped, by each recovery. */
  readonly recoveries: readonly number[];
  /** The numbers of records that were lost at the end. */
  readonly lost: readonly number[];
  /** How often the log has reported that its file was removed or replaced. */
  readonly replaced: () => number;
}

/** Returns a sink that never fails and keeps nothing, with some methods replaced. */
export function memorySink(methods: Partial<AuditSink>): AuditSink {
  return {
    found: { seq: 0, mac: '', oldest: 1, cutBytes: 0, headSeq: 0, isForged: false },
    savesHeadFirst: false,
    isInDoubt: false,
    append: async () => undefined,
    saveHead: async () => undefined,
    close: async () => undefined,
    ...methods,
  };
}

/** Returns a log whose sink keeps its lines in memory, with some methods replaced. */
export async function memoryLog(
  methods: Partial<AuditSink>,
  settings: Partial<AuditLogSettings> = {},
): Promise<MemoryLog> {
  const lines: string[] = [];
  const sink = memorySink({
    append: async (text) => void lines.push(...text.split('\n').slice(0, -1)),
    ...methods,
  });
  const recoveries: number[] = [];
  const lost: number[] = [];
  let replaced = 0;
  const nothing = () => undefined;
  const events = { onWritten: nothing, onDropped: nothing, onFailed: nothing, onFailing: nothing };
  const more = {
    onRecovered: (dropped: number) => void recoveries.push(dropped),
    onReplaced: () => void replaced++,
    onLost: (count: number) => void lost.push(count),
  };
  const log = await AuditLog.open({
    sink,
    key: KEY,
    settings: { ...SETTINGS, ...settings },
    process: {},
    events: { ...events, ...more },
  });
  return { log, lines, recoveries, lost, replaced: () => replaced };
}

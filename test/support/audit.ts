import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { z } from 'zod';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { AuditTrail } from '../../src/audit/audit-trail.ts';
import { openAudit } from '../../src/audit/open-audit.ts';
import type { AuditConfig } from '../../src/config/values/config.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { waitUntil } from './wait-until.ts';

const RECORD = z.looseObject({ seq: z.int(), time: z.string(), kind: z.string() });
export type AuditRecord = z.infer<typeof RECORD>;

/** An audit log in a folder of its own, and its records. */
export interface OpenAudit extends AsyncDisposable {
  readonly trail: AuditTrail;
  readonly path: string;
  /** Writes everything, and returns all records but those of the process itself. The log is closed then. */
  records(): Promise<AuditRecord[]>;
}

/** Opens an audit log. @param settings of `gateway.audit`, loaded. */
export async function openTestAudit(settings: Partial<AuditConfig> = {}): Promise<OpenAudit> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  const path = join(dir, 'audit.log');
  const config: AuditConfig = {
    file: path,
    otlp: undefined,
    maxBytes: 1_048_576,
    maxFiles: 4,
    arguments: 'digest',
    required: false,
    sync: 'never',
    queueBytes: 1_048_576,
    recordBytes: 16_384,
    keys: [],
    ...settings,
  };
  const { trail } = await openAudit(config, dir, { version: 'test' }, createMetrics('test'), pino({ level: 'silent' }));
  return {
    trail,
    path,
    records: async () => {
      await trail.close();
      return (await recordsIn(path)).filter(({ kind }) => kind !== 'started' && kind !== 'stopped');
    },
    [Symbol.asyncDispose]: async () => {
      await trail.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Reads the records of a file. Waits for the rest of a record that is being written. */
export async function recordsIn(path: string): Promise<AuditRecord[]> {
  let text = '';
  await waitUntil(async () => {
    text = await readFile(path, 'utf8');
    return text.endsWith('\n');
  });
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => RECORD.parse(JSON.parse(line)));
}

/** An audit log that runs a function before each record of a request that is to be sent. */
export function recordedAfter(onCommit: (event: AuditEvent) => Promise<unknown>): AuditTrail {
  const commit = async (event: AuditEvent) => {
    await onCommit(event);
    return 1;
  };
  const writer = { isFailing: false, record: () => undefined, commit, close: () => Promise.resolve() };
  const settings = { required: true, arguments: 'none' } as const;
  return new AuditTrail(writer, { digests: randomBytes(32).toString('base64url') }, settings);
}

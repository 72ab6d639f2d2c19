import { z } from 'zod';
import type { AuditConfig } from '../config/values/config.ts';
import { method, NOTHING, type PipeCalls } from '../store/piped/pipe-calls.ts';
import type { AuditLog } from './audit-log.ts';

/** The settings of the audit log that a worker needs. The key that chains records is not among them. */
export interface PipedAuditSettings extends Pick<AuditConfig, 'required' | 'arguments' | 'recordBytes'> {
  /** The key of the digests of arguments. */
  readonly digests: string;
  /** Records of this worker that the parent has not taken, together. */
  readonly queueBytes: number;
}

/** The members of a record as JSON without braces: one line, so that nobody can add another record. */
const RECORD_TEXT = z.string().regex(/^"time":"[^\r\n]*$/);
const COUNT = z.int().min(0);

/** The operations of the audit log of the parent. */
export const AUDIT = {
  /** `dropped` is the number of records that the worker had no room for since the last call. */
  add: method('audit.add', z.object({ texts: z.array(RECORD_TEXT), dropped: COUNT }), NOTHING),
  /** Resolves with the number of each record, or null for one that was not written until the time of {@link monotonicMs}. */
  commit: method(
    'audit.commit',
    z.object({ texts: z.array(RECORD_TEXT), untilMs: z.number() }),
    z.array(COUNT.nullable()),
  ),
} as const;

const NS_PER_MS = 1_000_000n;

/** Returns a time in ms that is the same in all processes of a machine, and never goes back. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / NS_PER_MS);
}

/** Writes the records of a worker to the audit log of this process. */
export function serveAudit(calls: PipeCalls, log: Pick<AuditLog, 'addText' | 'commitText' | 'drop'>): void {
  calls.serve(AUDIT.add, async ({ texts, dropped }) => {
    for (const text of texts) log.addText(text);
    if (dropped > 0) log.drop(dropped);
  });
  calls.serve(AUDIT.commit, async ({ texts, untilMs }) => {
    const waitMs = untilMs - monotonicMs();
    // The worker has refused these calls, or is about to.
    if (waitMs <= 0) return texts.map(() => null);
    const written = await Promise.allSettled(texts.map((text) => log.commitText(text, waitMs)));
    return written.map((each) => (each.status === 'fulfilled' ? each.value : null));
  });
}

import { jsonOf } from '../json/record.ts';
import { z } from 'zod';
import { type AuditKey, isSigned, signHead } from './chain.ts';

/** The state of a chain at one moment, which is kept apart from the records. It shows that records at the end are missing. */
export interface Head {
  /** Number of the last record; 0 if there is none. */
  readonly seq: number;
  /** MAC of the last record. */
  readonly mac: string;
  /** Number of the first record that is kept. The gateway has removed the files of earlier ones. */
  readonly oldest: number;
  /** Number of the last record that has certainly arrived; absent if that is the last one. Later ones may be missing. */
  readonly confirmed?: number | undefined;
}

const HEAD = z.strictObject({
  seq: z.int().min(0),
  mac: z.string(),
  oldest: z.int().min(1),
  confirmed: z.int().min(0).optional(),
  time: z.string(),
  key: z.string(),
  signature: z.string(),
});

const LIMIT_CHARS = 4_096;

export function headText(key: AuditKey, { seq, mac, oldest, confirmed }: Head, nowMs: number): string {
  const signed = { seq, mac, oldest, confirmed, time: new Date(nowMs).toISOString(), key: key.id };
  return `${JSON.stringify({ ...signed, signature: signHead(key, JSON.stringify(signed)) })}\n`;
}

/** Reads the text of a head. Returns undefined if none of the keys has signed it. */
export function readHead(keys: readonly AuditKey[], head: string): Head | undefined {
  const { data } = HEAD.safeParse(head.length > LIMIT_CHARS ? undefined : jsonOf(head));
  if (data === undefined) return undefined;
  const { signature, ...signed } = data;
  const { seq, mac, oldest, confirmed, time, key: id } = signed;
  const key = keys.find((one) => one.id === id);
  const text = JSON.stringify({ seq, mac, oldest, confirmed, time, key: id });
  if (key === undefined || !isSigned(key, text, signature)) return undefined;
  return { seq, mac, oldest, ...(confirmed === undefined ? {} : { confirmed }) };
}

import { randomBytes } from 'node:crypto';
import { z } from 'zod';

const KEY_BYTES = 32;

export const keyRecordSchema = z.strictObject({
  kid: z.string().min(1),
  key: z.base64url().refine((text) => Buffer.from(text, 'base64url').length === KEY_BYTES),
  /** Ms since the epoch. */
  created: z.number(),
  /** Ms since the epoch; afterwards the key opens no handle. */
  until: z.number().exactOptional(),
});

/** A stored key that seals handles. */
export type KeyRecord = z.output<typeof keyRecordSchema>;

/** Stores the keys that seal handles, oldest first. Always holds at least one key. */
export interface KeyStore {
  /** True if other processes add keys too. */
  readonly isShared?: boolean;
  /** Returns all keys. @throws {Error} with a message for the operator. */
  read(): Promise<readonly KeyRecord[]>;
  /** Adds a key. Older keys stay valid for `graceMs`. Only one process at a time may call this. */
  add(nowMs: number, graceMs: number): Promise<void>;
}

/** A replaced key is removed this long after it has expired. */
const KEEP_MS = 24 * 3_600_000;
/** A key without a grace period counts as expired for so long, because clocks of other processes may be behind, or be set back. */
const EXPIRED_MS = KEEP_MS / 2;

/** The oldest key goes when there would be more, and its handles with it. */
const MAX_KEYS = 64;

export function freshKey(nowMs: number): KeyRecord {
  return {
    kid: randomBytes(6).toString('base64url'),
    key: randomBytes(KEY_BYTES).toString('base64url'),
    created: nowMs,
  };
}

/** Returns the keys with a new one at the end. Older keys stay valid for `graceMs`. */
export function withFreshKey(keys: readonly KeyRecord[], nowMs: number, graceMs: number): readonly KeyRecord[] {
  const kept = keys.filter(({ until = Infinity }) => until + KEEP_MS > nowMs);
  const untilMs = nowMs + (graceMs > 0 ? graceMs : -EXPIRED_MS);
  const old = kept.map((key) => ({ ...key, until: Math.min(key.until ?? Infinity, untilMs) }));
  return [...old.slice(1 - MAX_KEYS), freshKey(nowMs)];
}

import { randomBytes } from 'node:crypto';
import { z } from 'zod';

const KEY_BYTES = 32;

export const keyRecordSchema = z.strictObject({
  kid: z.string().min(1),
  key: z.base64url().refine((text) => Buffer.from(text, 'base64url').length === KEY_BYTES),
  /** Ms since the epoch. */
  created: z.number(),
  /** Ms since the epoch; from then on it opens nothing any more. */
  until: z.number().exactOptional(),
});

/** A key that seals handles, as it is kept. */
export type KeyRecord = z.output<typeof keyRecordSchema>;

/** Keeps the keys that seal handles, oldest first. There is always at least one. */
export interface KeyStore {
  /** @throws {Error} with words for the operator. */
  read(): Promise<readonly KeyRecord[]>;
  /** Adds a key, and gives those before it `graceMs` to live. One process at a time may do this. */
  add(nowMs: number, graceMs: number): Promise<void>;
}

/** A key that was replaced is removed this long after nothing sealed with it opens any more. */
const KEEP_MS = 24 * 3_600_000;

/** Makes a random key. */
export function freshKey(nowMs: number): KeyRecord {
  return {
    kid: randomBytes(6).toString('base64url'),
    key: randomBytes(KEY_BYTES).toString('base64url'),
    created: nowMs,
  };
}

/** Returns the keys with a new one at the end. The others live for another `graceMs`. */
export function withFreshKey(keys: readonly KeyRecord[], nowMs: number, graceMs: number): readonly KeyRecord[] {
  const kept = keys.filter(({ until = Infinity }) => until + KEEP_MS > nowMs);
  const old = kept.map((key) => ({ ...key, until: Math.min(key.until ?? Infinity, nowMs + graceMs) }));
  return [...old, freshKey(nowMs)];
}

import { text } from './scalars.ts';

export const KEY_COMMAND = 'openssl rand -base64 32';

/** A key of so few different bytes is an example or a slip, not random. */
const LEAST_DIFFERENT_BYTES = 16;

/** Schema of a secret of 32 random bytes in base64; the output is base64url. */
export const randomKey = text('expected 32 random bytes in base64')
  .regex(/^[A-Za-z0-9+/_-]{43}=?$/, {
    error: `expected 32 random bytes in base64; "${KEY_COMMAND}" makes them`,
    abort: true,
  })
  .refine((key) => new Set(Buffer.from(key, 'base64')).size >= LEAST_DIFFERENT_BYTES, {
    error: `this key is not random; "${KEY_COMMAND}" makes one`,
  })
  .transform((key) => Buffer.from(key, 'base64').toString('base64url'));

import { hash } from 'node:crypto';

const DIGEST_CHARS = 16;

/** Returns the name of a session or group for operators and logs. The id of a session is a credential and is never shown. */
export function digestOf(handle: string): string {
  return hash('sha256', handle, 'hex').slice(0, DIGEST_CHARS);
}

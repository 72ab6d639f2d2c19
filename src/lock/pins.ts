import { hash } from 'node:crypto';
import { type Lock, parseLock } from './lock-file.ts';

/** The reactions to a definition that differs from the lock. `warn`: it is served. `quarantine`: it is withheld. `refuse`: its upstream is. */
export const ON_CHANGE = ['warn', 'quarantine', 'refuse'] as const;
export type OnChange = (typeof ON_CHANGE)[number];

/** The content of a lock file in use. Plain data, since workers get a copy. Two of equal content have equal digests. */
export interface Pins {
  /** SHA-256 of the text of the file, hex. */
  readonly sha256: string;
  readonly lists: Lock;
}

/** Returns the pins in the text of a lock file. @throws {LockFileError} */
export function pinsOf(text: string): Pins {
  return { sha256: hash('sha256', text), lists: parseLock(text) };
}

import { hash } from 'node:crypto';
import type { Era } from '../protocol/revisions.ts';
import { listsFor, type Lock, parseLock, type PinnedLists } from './lock-file.ts';

/** The reactions to a definition that differs from the lock. `warn`: it is served. `quarantine`: it is withheld. `refuse`: its upstream is. */
export const ON_CHANGE = ['warn', 'quarantine', 'refuse'] as const;
export type OnChange = (typeof ON_CHANGE)[number];

/** The content of a lock file in use. Immutable; two of equal content have equal digests. */
export class Pins {
  /** SHA-256 of the text of the file, hex. */
  readonly sha256: string;
  readonly #lock: Lock;

  /** @throws {LockFileError} */
  constructor(text: string) {
    this.sha256 = hash('sha256', text);
    this.#lock = parseLock(text);
  }

  /** Returns the pinned lists of an upstream for all eras; none if it is not in the lock. */
  listsOf(upstream: string): readonly PinnedLists[] {
    return this.#lock.get(upstream) ?? [];
  }

  /** Returns the pinned lists of an upstream that apply to an era; undefined if it is not in the lock. */
  listsFor(upstream: string, era: Era): PinnedLists | undefined {
    return listsFor(this.#lock.get(upstream), era);
  }
}

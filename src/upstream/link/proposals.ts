import { LEGACY_REVISIONS, type LegacyRevision } from '../../protocol/revisions.ts';
import { ABOUT_REVISION, supportedBy } from './era-evidence.ts';

/** The legacy revisions that one start proposes to an upstream, until it takes one. Each is proposed once, on whichever connection. */
export class Proposals {
  readonly #asked = new Set<LegacyRevision>();
  #current: LegacyRevision;

  constructor(first: LegacyRevision) {
    this.#current = first;
  }

  /** The revision to propose. */
  get current(): LegacyRevision {
    return this.#current;
  }

  /** Returns whether another revision was refused before the current one. */
  get hasMoved(): boolean {
    return this.#asked.size > 0 && !this.#asked.has(this.#current);
  }

  /**
   * Moves to the newest revision that a refusal names. One that is about revisions and names none moves to the next older one.
   *
   * @returns false if there is none, so that the refusal stands.
   */
  moveOn(message: string, data?: unknown): boolean {
    this.#asked.add(this.#current);
    const supported = supportedBy(data);
    const left = LEGACY_REVISIONS.filter((revision) => !this.#asked.has(revision));
    const named = left.findLast((revision) => supported.includes(revision) || message.includes(revision));
    const next = named ?? (supported.length === 0 && ABOUT_REVISION.test(message) ? left.at(-1) : undefined);
    if (next !== undefined) this.#current = next;
    return next !== undefined;
  }
}

import type { RawObject } from '../json/json.ts';

/**
 * Member names that must not appear in other spellings, since some parsers merge `Method` with `method`. List frequent
 * names first.
 */
export class MemberNames {
  readonly #names: readonly string[];
  readonly #folded: ReadonlySet<string>;

  /** @param others frequent names that need no comparison. */
  constructor(names: readonly string[], others: readonly string[] = []) {
    this.#names = [...others, ...names];
    this.#folded = new Set(names.map(folded));
  }

  /** Returns the first member whose name a lenient parser could take for one of these names, or undefined. */
  findLookalike(object: RawObject): string | undefined {
    return object.keys().find((key) => this.#isLookalike(key));
  }

  withoutLookalikes(object: RawObject): RawObject {
    return object.filter((key) => !this.#isLookalike(key));
  }

  #isLookalike(key: string): boolean {
    return !this.#names.includes(key) && (this.#folded.has(folded(key)) || key === '__proto__');
  }
}

/** Folds case by way of upper case, because Go also accepts "paramſ" for "params". */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase();
}

const QUOTED_CHARS = 40;

/** Returns the name of a lookalike with the reason why it is refused, as the end of "a member …". */
export function lookalike(name: string): string {
  return `"${name.slice(0, QUOTED_CHARS)}" that could be mistaken for another one`;
}

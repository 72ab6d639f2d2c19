import { random } from '../support/random.ts';

/** Random choices that are the same for the same seed. */
export class Dice {
  readonly #below: (below: number) => number;

  constructor(seed: number) {
    this.#below = random(seed);
  }

  /** Returns a whole number from 0 to below this bound. */
  below(bound: number): number {
    return this.#below(bound);
  }

  /** Returns true once in `times`. */
  once(times: number): boolean {
    return this.#below(times) === 0;
  }

  /** @throws {RangeError} for an empty list. */
  one<T>(values: readonly T[]): T {
    const value = values[this.#below(values.length)];
    if (value === undefined) throw new RangeError('no values');
    return value;
  }

  /** Returns a text with `count` of these parts. */
  some(parts: readonly string[], count: number): string {
    return Array.from({ length: count }, () => this.one(parts)).join('');
  }
}

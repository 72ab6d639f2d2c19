/** Consecutive serial numbers of ended sessions, first and last included. */
export interface EndedRange {
  readonly first: number;
  readonly last: number;
  /** Ms since the epoch, when the last of their ids expires. */
  readonly untilMs: number;
}

/**
 * The serial numbers of one principal's ended sessions, as sorted ranges.
 *
 * A client that opens and ends sessions in a loop costs one range, because its numbers are consecutive.
 */
export class EndedSerials {
  readonly #ranges: EndedRange[] = [];

  get size(): number {
    return this.#ranges.length;
  }

  get ranges(): readonly EndedRange[] {
    return this.#ranges;
  }

  has(serial: number): boolean {
    const range = this.#ranges[this.#indexOf(serial)];
    return range !== undefined && range.first <= serial;
  }

  /** Adds a range, and joins it with the ranges that it overlaps or touches. */
  add({ first, last, untilMs }: EndedRange): void {
    const from = this.#indexOf(first - 1);
    let to = from;
    let joined = { first, last, untilMs };
    for (let range = this.#ranges[to]; range !== undefined && range.first <= last + 1; range = this.#ranges[to]) {
      joined = {
        first: Math.min(joined.first, range.first),
        last: Math.max(joined.last, range.last),
        untilMs: Math.max(joined.untilMs, range.untilMs),
      };
      to++;
    }
    this.#ranges.splice(from, to - from, joined);
  }

  /**
   * Joins the oldest ranges until `size` are left. This ends the sessions between them.
   *
   * @param untilMs ms since the epoch, when the ids of those sessions have expired.
   */
  joinOldest(size: number, untilMs: number): void {
    const last = this.#ranges[this.#ranges.length - Math.max(size, 1)];
    const first = this.#ranges[0];
    if (first !== undefined && last !== undefined) this.add({ first: first.first, last: last.last, untilMs });
  }

  removeExpired(nowMs: number): void {
    const kept = this.#ranges.filter(({ untilMs }) => nowMs < untilMs);
    this.#ranges.splice(0, this.#ranges.length, ...kept);
  }

  /** Returns the index of the first range that ends at this number or after it. */
  #indexOf(serial: number): number {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const range = this.#ranges[middle];
      if (range !== undefined && range.last < serial) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const STEP_MS = 1_000;

/** Names by the time at which they expire, in steps of a second. They may be added in any order. */
export class ExpirySteps {
  /** The names by the number of the step in which they expire. */
  readonly #steps = new Map<number, Set<string>>();
  /** The first step that is not over. */
  #current: number;

  /** @param nowMs monotonic, as all times here. */
  constructor(nowMs: number) {
    this.#current = stepOf(nowMs);
  }

  add(name: string, untilMs: number): void {
    const step = stepOf(untilMs);
    const names = this.#steps.get(step);
    if (names === undefined) this.#steps.set(step, new Set([name]));
    else names.add(name);
  }

  remove(name: string, untilMs: number): void {
    const step = stepOf(untilMs);
    const names = this.#steps.get(step);
    if (names?.delete(name) === true && names.size === 0) this.#steps.delete(step);
  }

  /** Removes and returns the names that have expired, each at the latest a second after its time. */
  takeExpired(nowMs: number): readonly string[] {
    const expired: string[] = [];
    for (const now = stepOf(nowMs); this.#current < now; this.#current++) {
      for (const name of this.#steps.get(this.#current) ?? []) expired.push(name);
      this.#steps.delete(this.#current);
    }
    return expired;
  }

  /** Returns the name that expires first, of those of one step the first one; undefined if there is none. */
  first(): string | undefined {
    let first = Infinity;
    for (const step of this.#steps.keys()) if (step < first) first = step;
    const [name] = this.#steps.get(first) ?? [];
    return name;
  }
}

function stepOf(ms: number): number {
  return Math.floor(ms / STEP_MS);
}

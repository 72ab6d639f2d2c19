/** Bounds how many streams one principal has open at once. */
export class StreamCounts {
  readonly #perPrincipal: number;
  readonly #counts = new Map<string, number>();

  constructor(perPrincipal: number) {
    this.#perPrincipal = perPrincipal;
  }

  /** Returns false where the principal has as many as it may. Otherwise {@link remove} follows. */
  add(principal: string): boolean {
    const count = this.#counts.get(principal) ?? 0;
    if (count >= this.#perPrincipal) return false;
    this.#counts.set(principal, count + 1);
    return true;
  }

  remove(principal: string): void {
    const count = this.#counts.get(principal) ?? 0;
    if (count > 1) this.#counts.set(principal, count - 1);
    else this.#counts.delete(principal);
  }
}

/** Bounds the number of open streams per principal. */
export class StreamCounts {
  /** A lower bound closes no open stream. */
  perPrincipal: number;
  readonly #counts = new Map<string, number>();

  constructor(perPrincipal: number) {
    this.perPrincipal = perPrincipal;
  }

  /** Counts a stream until {@link remove} is called. Returns false if the principal has too many. */
  add(principal: string): boolean {
    const count = this.#counts.get(principal) ?? 0;
    if (count >= this.perPrincipal) return false;
    this.#counts.set(principal, count + 1);
    return true;
  }

  remove(principal: string): void {
    const count = this.#counts.get(principal) ?? 0;
    if (count > 1) this.#counts.set(principal, count - 1);
    else this.#counts.delete(principal);
  }
}

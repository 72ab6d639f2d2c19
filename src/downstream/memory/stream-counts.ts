import { GatewayError } from '../../errors.ts';

/** Bounds the number of open streams per principal. */
export class StreamCounts {
  /** Returns the bound, which may change. A lower one closes no open stream. */
  readonly #perPrincipal: () => number;
  readonly #what: string;
  readonly #onRefused: () => void;
  readonly #counts = new Map<string, number>();

  /** @param what the streams, as in `SSE streams`. */
  constructor(what: string, perPrincipal: () => number, onRefused: () => void) {
    this.#what = what;
    this.#perPrincipal = perPrincipal;
    this.#onRefused = onRefused;
  }

  /** Counts a stream until {@link remove} is called. Returns the refusal if the principal has too many. */
  add(principal: string): GatewayError | undefined {
    const count = this.#counts.get(principal) ?? 0;
    const most = this.#perPrincipal();
    if (count >= most) {
      this.#onRefused();
      const message = `you have ${most} ${this.#what} open; close one first`;
      return new GatewayError('overloaded', { message });
    }
    this.#counts.set(principal, count + 1);
    return undefined;
  }

  remove(principal: string): void {
    const count = this.#counts.get(principal) ?? 0;
    if (count > 1) this.#counts.set(principal, count - 1);
    else this.#counts.delete(principal);
  }
}

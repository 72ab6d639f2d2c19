import { GatewayError } from '../../errors.ts';
import { KeyedSums } from '../../map-entries.ts';

/** Bounds the number of open streams per principal. */
export class StreamCounts {
  /** Returns the bound, which may change. A lower one closes no open stream. */
  readonly #perPrincipal: () => number;
  readonly #what: string;
  readonly #onRefused: () => void;
  readonly #counts = new KeyedSums();

  /** @param what the streams, as in `SSE streams`. */
  constructor(what: string, perPrincipal: () => number, onRefused: () => void) {
    this.#what = what;
    this.#perPrincipal = perPrincipal;
    this.#onRefused = onRefused;
  }

  /** Counts a stream until {@link remove} is called. Returns the refusal if the principal has too many. */
  add(principal: string): GatewayError | undefined {
    const most = this.#perPrincipal();
    if (this.#counts.of(principal) >= most) {
      this.#onRefused();
      const message = `you have ${most} ${this.#what} open; close one first`;
      return new GatewayError('overloaded', { message });
    }
    this.#counts.add(principal, 1);
    return undefined;
  }

  remove(principal: string): void {
    this.#counts.add(principal, -1);
  }
}

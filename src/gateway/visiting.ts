import type { GatewayError } from '../errors.ts';
import type { Request } from '../protocol/jsonrpc.ts';
import type { Affinity } from './affinity.ts';
import type { ModernCall } from './front.ts';
import type { Listen } from './listen.ts';
import type { OpenExchange } from './open-exchange.ts';

/** One request of a modern client while it is under way. */
export class Visiting implements ModernCall {
  exchange: OpenExchange | undefined;
  listen: Listen | undefined;
  /** The same request where its call is. */
  handed: ModernCall | undefined;
  /** Where it counts as under way. */
  #counted: Affinity | undefined;
  /** Where its exchange works, if that ends with it. */
  #working: Affinity | undefined;
  readonly #request: Request;
  #isCancelled = false;

  constructor(request: Request) {
    this.#request = request;
  }

  counts(affinity: Affinity): void {
    affinity.underWay++;
    this.#counted = affinity;
  }

  /** What is taken up after the client has gone ends at once. */
  took(exchange: OpenExchange): void {
    this.exchange = exchange;
    if (this.#isCancelled) exchange.cancel('the client has gone');
  }

  /** Its exchange ends with it. */
  endsWith(exchange: OpenExchange, at: Affinity): void {
    this.#working = at;
    at.working.add(exchange);
  }

  /** Whether its exchange ends with it. */
  get isEnd(): boolean {
    return this.#working !== undefined;
  }

  /** Why its exchange ended before the upstream did, if it did. */
  get failure(): GatewayError | undefined {
    return this.#working === undefined ? undefined : this.exchange?.failure;
  }

  cancel(reason: string | undefined): void {
    this.#isCancelled = true;
    // A request made twice goes on as long as the later one is there.
    if (this.exchange?.request === this.#request) this.exchange.cancel(reason);
    this.handed?.cancel(reason);
    this.listen?.close();
  }

  close(): void {
    this.listen?.close();
  }

  /** It is answered. */
  over(): void {
    if (this.#counted !== undefined) this.#counted.underWay--;
    if (this.exchange !== undefined) this.#working?.working.delete(this.exchange);
  }
}

import type { GatewayError } from '../errors.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import type { HeaderLookup } from '../protocol/mcp-headers.ts';
import type { Affinity } from './affinity.ts';
import type { Ending } from './calls.ts';
import type { ModernCall, ModernCaller, ModernOutlet } from './front.ts';
import type { Listen } from './listen.ts';
import type { OpenExchange } from './open-exchange.ts';

const GONE = 'the client has gone';

/** Who brings a request to its answer. */
export interface Host {
  /** How it ends where there is no answer. Never rejects. */
  unanswered(visiting: Visiting, thrown: unknown): Promise<Answer>;
  ended(visiting: Visiting, answer: Answer): void;
}

/** One request of a modern client while it is under way. */
export class Visiting implements ModernCall, Ending {
  readonly request: Request;
  readonly caller: ModernCaller;
  readonly outlet: ModernOutlet;
  readonly lookup: HeaderLookup | undefined;
  exchange: OpenExchange | undefined;
  #listen: Listen | undefined;
  /** The same request where its call is. */
  #handed: ModernCall | undefined;
  readonly #host: Host;
  /** Where it counts as under way. */
  #counted: Affinity | undefined;
  /** Where its exchange works, if that ends with it. */
  #working: Affinity | undefined;
  #isCancelled = false;
  #isClosed = false;

  constructor(
    host: Host,
    request: Request,
    caller: ModernCaller,
    outlet: ModernOutlet,
    lookup: HeaderLookup | undefined,
  ) {
    this.#host = host;
    this.request = request;
    this.caller = caller;
    this.outlet = outlet;
    this.lookup = lookup;
  }

  counts(affinity: Affinity): void {
    affinity.underWay++;
    this.#counted = affinity;
  }

  /** What is taken up after the client has gone ends at once. */
  took(exchange: OpenExchange): void {
    this.exchange = exchange;
    if (this.#isCancelled) exchange.cancel(GONE);
  }

  /** Takes it for as long as the request lasts, and no longer. */
  tookAt(exchange: OpenExchange, at: Affinity): void {
    this.took(exchange);
    this.#working = at;
    at.working.add(exchange);
  }

  /** The call is elsewhere. */
  handedTo(call: ModernCall): void {
    this.#handed = call;
    if (this.#isCancelled) call.cancel(GONE);
  }

  /** It lasts until somebody ends it, which may have been before. */
  listens(listen: Listen): void {
    this.#listen = listen;
    if (this.#isClosed) listen.close();
  }

  /** Whether the exchange ends with it. */
  get isWhole(): boolean {
    return this.#working !== undefined;
  }

  cancel(reason: string | undefined): void {
    this.#isCancelled = true;
    // A request made twice goes on as long as the later one is there.
    if (this.exchange?.request === this.request) this.exchange.cancel(reason);
    this.#handed?.cancel(reason);
    this.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#listen?.close();
  }

  /** @param answering nothing where it is going to be told. */
  awaits(answering: Answer | undefined | Promise<Answer | undefined>): void {
    if (answering instanceof Promise) {
      answering.then(
        (answer) => this.awaits(answer),
        (thrown: unknown) => this.failed(thrown),
      );
    } else if (answering !== undefined) this.answered(answering);
  }

  answered(answer: Answer): void {
    const failure = this.#failure;
    if (failure === undefined) this.#host.ended(this, answer);
    else this.failed(failure);
  }

  failed(thrown: unknown): void {
    void this.#host.unanswered(this, this.#failure ?? thrown).then((answer) => this.#host.ended(this, answer));
  }

  /** Its upstream asked what it could not ask, and may have made something of the refusal. */
  get #failure(): GatewayError | undefined {
    return this.isWhole ? this.exchange?.failure : undefined;
  }

  /** It is answered. */
  over(): void {
    if (this.#counted !== undefined) this.#counted.underWay--;
    if (this.exchange !== undefined) this.#working?.working.delete(this.exchange);
  }
}

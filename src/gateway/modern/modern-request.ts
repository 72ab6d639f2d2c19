import type { GatewayError } from '../../errors.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { HeaderLookup } from '../../protocol/framing/mcp-headers.ts';
import type { ClientGroup } from '../clients/client-group.ts';
import type { ModernCall, ModernCaller, ModernSink } from '../front.ts';
import type { SubscriptionStream } from './subscription-stream.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';

const GONE = 'the client has gone';

/** Who brings a request to its answer. */
export interface ModernRequestHost {
  /** Returns the answer that reports a failure. */
  toFailure(modernRequest: ModernRequest, thrown: unknown): Answer;
  finish(modernRequest: ModernRequest, answer: Answer): void;
}

/** One request of a modern client while it is under way. */
export class ModernRequest implements ModernCall {
  readonly request: Request;
  readonly caller: ModernCaller;
  readonly sink: ModernSink;
  readonly lookup: HeaderLookup | undefined;
  exchange: OpenExchange | undefined;
  #stream: SubscriptionStream | undefined;
  /** The same request where its call is. */
  #delegate: ModernCall | undefined;
  readonly #host: ModernRequestHost;
  /** Where it counts as under way. */
  #countedIn: ClientGroup | undefined;
  /** Where its exchange works, if that ends with it. */
  #boundTo: ClientGroup | undefined;
  #isCancelled = false;
  #isClosed = false;

  constructor(
    host: ModernRequestHost,
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    lookup: HeaderLookup | undefined,
  ) {
    this.#host = host;
    this.request = request;
    this.caller = caller;
    this.sink = sink;
    this.lookup = lookup;
  }

  countIn(group: ClientGroup): void {
    group.inFlightCount++;
    this.#countedIn = group;
  }

  /** What is taken up after the client has gone ends at once. */
  bind(exchange: OpenExchange): void {
    this.exchange = exchange;
    if (this.#isCancelled) exchange.cancel(GONE);
  }

  /** Takes it for as long as the request lasts, and no longer. */
  bindTo(exchange: OpenExchange, at: ClientGroup): void {
    this.bind(exchange);
    this.#boundTo = at;
    at.activeExchanges.add(exchange);
  }

  /** The call is elsewhere. */
  delegateTo(call: ModernCall): void {
    this.#delegate = call;
    if (this.#isCancelled) call.cancel(GONE);
  }

  /** It lasts until somebody ends it, which may have been before. */
  attachStream(listen: SubscriptionStream): void {
    this.#stream = listen;
    if (this.#isClosed) listen.close();
  }

  /** Whether the exchange ends with it. */
  get endsWithRequest(): boolean {
    return this.#boundTo !== undefined;
  }

  cancel(reason: string | undefined): void {
    this.#isCancelled = true;
    // A request made twice goes on as long as the later one is there.
    if (this.exchange?.request === this.request) this.exchange.cancel(reason);
    this.#delegate?.cancel(reason);
    this.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#stream?.close();
  }

  /** Answers the request when this settles. */
  follow(answering: Promise<Answer>): void {
    answering.then(
      (answer) => this.#finish(answer),
      (thrown: unknown) => this.reject(thrown),
    );
  }

  reject(thrown: unknown): void {
    this.#host.finish(this, this.#host.toFailure(this, this.#failure ?? thrown));
  }

  #finish(answer: Answer): void {
    const failure = this.#failure;
    this.#host.finish(this, failure === undefined ? answer : this.#host.toFailure(this, failure));
  }

  /** Its upstream asked what it could not ask, and may have made something of the refusal. */
  get #failure(): GatewayError | undefined {
    return this.endsWithRequest ? this.exchange?.failure : undefined;
  }

  /** It is answered. */
  release(): void {
    if (this.#countedIn !== undefined) this.#countedIn.inFlightCount--;
    if (this.exchange !== undefined) this.#boundTo?.activeExchanges.delete(this.exchange);
  }
}

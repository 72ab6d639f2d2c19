import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { Answer, Notification } from '../../protocol/jsonrpc.ts';
import type { Header } from '../../protocol/mcp-headers.ts';
import type { Severity } from '../../protocol/severity.ts';

export interface CallOptions<Owner> {
  /** How long to wait without progress, and with it. Milliseconds; `Infinity` for ever. */
  readonly timeoutMs: number;
  readonly maxMs: number;
  /** Whether to ask for progress: puts a token of ours in the place of the client's. */
  readonly progress: boolean;
  /** Whether there may be progress after the answer, until its owner's is forgotten: it may go on as a task. */
  readonly outlivesAnswer?: boolean;
  /** Whether nobody waits for it: the connection counts as idle all the same. */
  readonly background?: true;
  /** Whose call this is: what {@link ConnectionEvents} are told about it. */
  readonly context: Owner | undefined;
  /** In the modern era: what the client can do, `{}` unless given, and which log messages of this call it wants. */
  readonly capabilities?: RawObject | undefined;
  readonly logLevel?: Severity | undefined;
  /** In the modern era: `Mcp-Param-…`. */
  readonly headers?: readonly Header[] | undefined;
  /** Is told how it ended and how long it took, before whoever waits for the answer. */
  readonly onEnd?: (answer: Answer | GatewayError, durationMs: number) => void;
  /** Is told what is said about this call, in place of the connection's own events. */
  readonly onNotification?: (notification: Notification) => void;
}

/** A request to the upstream that is under way. */
export interface Call<Owner> {
  readonly id: number;
  readonly context: Owner | undefined;
  /** Monotonic. */
  readonly startedMs: number;
  /** Rejects with a {@link GatewayError} when no answer will come. Made when it is asked for. */
  readonly answer: Promise<Answer>;
  /** Tells the upstream, rejects the answer with `cancelled` and drops what may still arrive. */
  cancel(reason: string | undefined): void;
}

/** Whoever can end a call. */
interface Canceller<Owner> {
  cancel(call: Call<Owner>, reason: string | undefined): void;
}

function ignore(): void {}

/** A call until it is settled: what its connection knows of it. */
export class PendingCall<Owner> implements Call<Owner> {
  readonly id: number;
  readonly method: string;
  readonly options: CallOptions<Owner>;
  readonly startedMs: number = performance.now();
  lastActivityMs: number = this.startedMs;
  readonly #canceller: Canceller<Owner>;
  #outcome: Answer | GatewayError | undefined;
  /** For whoever waits for it: not everybody does. */
  #answer: Promise<Answer> | undefined;
  #waiting: { resolve(answer: Answer): void; reject(error: GatewayError): void } | undefined;

  constructor(canceller: Canceller<Owner>, id: number, method: string, options: CallOptions<Owner>) {
    this.#canceller = canceller;
    this.id = id;
    this.method = method;
    this.options = options;
  }

  get answer(): Promise<Answer> {
    if (this.#answer === undefined) {
      this.#answer = new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
      this.#deliver();
    }
    return this.#answer;
  }

  get context(): Owner | undefined {
    return this.options.context;
  }

  /** How it ends. */
  settle(outcome: Answer | GatewayError): void {
    this.#outcome = outcome;
    this.options.onEnd?.(outcome, performance.now() - this.startedMs);
    this.#deliver();
  }

  #deliver(): void {
    const outcome = this.#outcome;
    if (outcome === undefined) return;
    if (!(outcome instanceof GatewayError)) this.#waiting?.resolve(outcome);
    else {
      // Whoever asked may be gone by now.
      this.#answer?.catch(ignore);
      this.#waiting?.reject(outcome);
    }
  }

  cancel(reason: string | undefined): void {
    this.#canceller.cancel(this, reason);
  }

  /** Monotonic ms. */
  get dueMs(): number {
    const { timeoutMs, maxMs } = this.options;
    return timeoutMs === Infinity ? Infinity : Math.min(this.lastActivityMs + timeoutMs, this.startedMs + maxMs);
  }
}

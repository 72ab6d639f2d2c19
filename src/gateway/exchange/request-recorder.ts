import type { Logger } from 'pino';
import { GatewayError, toAnswer, toGatewayError } from '../../errors.ts';
import { JsonTextError } from '../../json/json.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { errorTypeOf } from '../../telemetry/operation.ts';
import type { RequestLog } from '../../telemetry/request-log.ts';
import type { Caller } from './caller.ts';
import type { OpenExchange } from './open-exchange.ts';

/** A network connection, or the pipes of a process; names of OpenTelemetry's `network.transport`. */
export type ClientTransport = 'tcp' | 'pipe';

/** Records every request of a client: in the metrics, and as one line of the log without its contents. */
export class RequestRecorder {
  readonly #metrics: Metrics;
  readonly #log: Logger;
  readonly #requestLog: RequestLog | undefined;
  readonly #transport: ClientTransport;
  #inFlightCount = 0;

  /**
   * @param requestLog undefined where requests are not logged.
   * @param transport how clients are connected.
   */
  constructor(metrics: Metrics, log: Logger, requestLog: RequestLog | undefined, transport: ClientTransport) {
    this.#transport = transport;
    this.#metrics = metrics;
    this.#log = log;
    this.#requestLog = requestLog;
  }

  /** Requests that are not answered yet. */
  get inFlightCount(): number {
    return this.#inFlightCount;
  }

  /** Records that a request has come. */
  begin(): void {
    this.#inFlightCount++;
    this.#metrics.requestsInFlight.add();
  }

  /** Records the answer to a request: who asked what of which upstream, how it ended, and after how many ms. */
  end(
    { principal, revision }: Caller,
    { method }: Request,
    exchange: OpenExchange | undefined,
    answer: Answer,
    durationMs: number,
  ): void {
    this.#inFlightCount--;
    this.#metrics.requestsInFlight.remove();
    const { tool, upstream, outcome } = exchange ?? {};
    const error = outcome?.answer === answer ? outcome.error : errorTypeOf(method, answer);
    this.#metrics.served({ method, tool, error, revision, transport: this.#transport }, durationMs / 1000);
    const line = { method, tool, upstream, principal: principal.label, revision, error, ms: durationMs };
    this.#requestLog?.write(line);
  }

  /** Records a failure. Returns the answer that reports it to the client. */
  fail(thrown: unknown, method: string): Answer {
    // A client's parameters are cut open only where they are needed, and may turn out broken there.
    const isBroken = thrown instanceof JsonTextError;
    const error = isBroken ? new GatewayError('invalid-params', { message: thrown.message }) : toGatewayError(thrown);
    const level = error.code === 'internal-error' ? 'error' : 'info';
    this.#log[level]({ err: error, code: error.code, method, ...error.detail }, 'request not answered by an upstream');
    if (error.code === 'overloaded') this.#metrics.shed(error.code);
    return toAnswer(error);
  }

  /** Writes the lines of the log that wait. */
  flush(): void {
    this.#requestLog?.flush();
  }
}

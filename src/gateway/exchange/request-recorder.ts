import type { Logger } from 'pino';
import { GatewayError, toAnswer, toGatewayError } from '../../errors.ts';
import { JsonTextError } from '../../json/json.ts';
import type { HeaderLookup } from '../../protocol/framing/mcp-headers.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { errorTypeOf } from '../../telemetry/operation.ts';
import type { RequestLog } from '../../telemetry/request-log.ts';
import { endOfOperation } from '../../telemetry/tracing/mcp-spans.ts';
import type { Span, Tracing } from '../../telemetry/tracing/tracing.ts';
import type { Caller } from './caller.ts';
import type { OpenExchange } from './open-exchange.ts';

/** A network connection, or the pipes of a process; names of OpenTelemetry's `network.transport`. */
export type ClientTransport = 'tcp' | 'pipe';

/**
 * Records client requests in the metrics, each as one line of the request log, and as a span if requests are traced. Neither
 * has arguments or results.
 */
export class RequestRecorder {
  readonly #metrics: Metrics;
  readonly #log: Logger;
  readonly #requestLog: RequestLog | undefined;
  readonly #transport: ClientTransport;
  readonly #tracing: Tracing | undefined;
  #inFlightCount = 0;

  /**
   * @param requestLog undefined if requests are not logged.
   * @param transport how clients are connected.
   * @param tracing undefined if requests are not traced.
   */
  constructor(
    metrics: Metrics,
    log: Logger,
    requestLog: RequestLog | undefined,
    transport: ClientTransport,
    tracing: Tracing | undefined,
  ) {
    this.#transport = transport;
    this.#tracing = tracing;
    this.#metrics = metrics;
    this.#log = log;
    this.#requestLog = requestLog;
  }

  /** The number of requests that are not answered yet. */
  get inFlightCount(): number {
    return this.#inFlightCount;
  }

  /** Records the arrival of a request. Returns its span, if requests are traced. */
  begin(request: Request, headers: HeaderLookup | undefined): Span | undefined {
    this.#inFlightCount++;
    this.#metrics.requestsInFlight.add();
    return this.#tracing?.beginRequest(request, headers);
  }

  /** Records the answer to a request: its method, caller and upstream, its outcome and its duration. Ends its span. */
  end(
    { principal, revision }: Caller,
    request: Request,
    exchange: OpenExchange | undefined,
    answer: Answer,
    durationMs: number,
    span: Span | undefined,
  ): void {
    const { method } = request;
    this.#inFlightCount--;
    this.#metrics.requestsInFlight.remove();
    const { tool, upstream, outcome } = exchange ?? {};
    const error = outcome?.answer === answer ? outcome.error : errorTypeOf(method, answer);
    const operation = { method, tool, error, revision, transport: this.#transport };
    this.#metrics.served(operation, durationMs / 1000);
    const traceId = span?.traceId;
    const line = { method, tool, upstream, principal: principal.label, revision, error, ms: durationMs, traceId };
    this.#requestLog?.write(line);
    if (span === undefined) return;
    // A prompt that was sent to an upstream is in the catalog.
    const isPrompt = upstream !== undefined && method === 'prompts/get';
    const prompt = isPrompt ? request.params?.string('name') : undefined;
    span.end(endOfOperation({ ...operation, prompt, id: request.id, answer, upstream }));
  }

  /** Logs a failure, and returns the answer that reports it to the client. */
  fail(thrown: unknown, method: string): Answer {
    // Parameters are parsed only as far as they are needed, so they may turn out malformed late.
    const isBroken = thrown instanceof JsonTextError;
    const error = isBroken ? new GatewayError('invalid-params', { message: thrown.message }) : toGatewayError(thrown);
    const level = error.code === 'internal-error' ? 'error' : 'info';
    this.#log[level]({ err: error, code: error.code, method, ...error.detail }, 'request not answered by an upstream');
    if (error.code === 'overloaded') this.#metrics.shed(error.code);
    return toAnswer(error);
  }

  /** Writes the buffered lines of the request log. */
  flush(): void {
    this.#requestLog?.flush();
  }
}

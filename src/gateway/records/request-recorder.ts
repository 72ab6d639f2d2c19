import { GatewayError, toAnswer, toGatewayError } from '../../errors.ts';
import { JsonTextError } from '../../json/json.ts';
import { shownText } from '../../peer-text.ts';
import type { Principal } from '../../policy/principal.ts';
import type { HeaderLookup } from '../../protocol/framing/mcp-headers.ts';
import type { Answer, Notification, Request, Response } from '../../protocol/jsonrpc.ts';
import { eraOf } from '../../protocol/revisions.ts';
import { type ErrorType, errorTypeOf, upstreamErrorTypeOf } from '../../telemetry/operation.ts';
import { RefusalLines } from '../../telemetry/log/refusal-lines.ts';
import type { LoggedClient, LoggedKind, RequestLog } from '../../telemetry/request-log.ts';
import { endOfOperation, nameOf } from '../../telemetry/tracing/mcp-spans.ts';
import type { Span, Tracing } from '../../telemetry/tracing/tracing.ts';
import { type AuditRecorder, isUpstreamError } from './audit-recorder.ts';
import type { Caller } from '../front/caller.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { Verdict } from '../exchange/gate.ts';
import { bytesOf, resultBytes } from './message-bytes.ts';
import type { SharedParts } from './shared-parts.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';

const SHED: ReadonlySet<string> = new Set(['overloaded', 'rate-limited', 'repeated-call']);

/** A network connection, or the pipes of a process; names of OpenTelemetry's `network.transport`. */
export type ClientTransport = 'tcp' | 'pipe';

export interface RequestRecorderParts extends Pick<SharedParts, 'metrics' | 'log' | 'onLimit'> {
  /** Undefined if requests are not logged. */
  readonly requestLog: RequestLog | undefined;
  /** Undefined if requests are not traced. */
  readonly tracing: Tracing | undefined;
  /** Undefined if there is no audit log. */
  readonly audit: AuditRecorder | undefined;
  readonly transport: ClientTransport;
  /** Returns how the client of a caller describes itself; undefined if it has not done so. */
  readonly clientOf: (caller: Caller) => LoggedClient | undefined;
}

/** The principal and endpoint of a message; its whole caller if that is known. */
type MessageSource = Pick<Caller, 'principal' | 'view'> & Partial<Caller>;

interface AnsweredRequest {
  /** Of an `initialize` that failed, only its principal and endpoint. */
  readonly caller: MessageSource;
  /** The caller under which the client has described itself. Default: `caller`. */
  readonly describedBy?: Caller;
  /** The session or group of the caller; undefined if the request failed before one was found. */
  readonly holder: ConnectionHolder | undefined;
  readonly request: Request;
  readonly exchange: OpenExchange | undefined;
  readonly answer: Answer;
  readonly durationMs: number;
  readonly span: Span | undefined;
  /** True if another process has passed the request on to this one, as at its {@link RequestRecorder.begin}. */
  readonly isPassedOn?: boolean;
  /** True if another process has answered the request, and has it in its metrics and logs. */
  readonly isAnsweredElsewhere?: boolean;
}

interface FailedRequest {
  readonly request: Request;
  readonly principal: Principal;
  /** Of the request, if it is traced: the line and the answer name its trace. */
  readonly span?: Span | undefined;
  /** False if no request waits for the answer. Default: true. */
  readonly isAwaited?: boolean;
}

/** The reason of a failure for the line of its request; undefined if that says it already. */
interface LoggedFailure {
  readonly reason: string | undefined;
  /** True if the request has no line, because its sender has too many. */
  readonly isSuppressed: boolean;
}

const SUPPRESSED: LoggedFailure = { reason: undefined, isSuppressed: true };
const TOLD: LoggedFailure = { reason: undefined, isSuppressed: false };

/** Returns whether the upstream may have run the request, so that it is no refusal of the gateway. */
function mayHaveRun({ executed }: GatewayError): boolean {
  return executed === 'unknown' || executed === 'yes';
}

interface Outcome {
  readonly kind: LoggedKind;
  readonly client?: LoggedClient | undefined;
  readonly message: Request | Notification | Response;
  readonly exchange?: OpenExchange | undefined;
  readonly answer?: Answer;
  readonly error?: ErrorType | undefined;
  readonly reason?: string | undefined;
  readonly denied?: string | undefined;
  readonly ms?: number;
  readonly span?: Span | undefined;
}

/**
 * Records client requests in the metrics and as spans if they are traced, and each message as one line of the request log. Neither
 * has arguments or results.
 */
export class RequestRecorder {
  readonly #parts: RequestRecorderParts;
  readonly #refusalLines: RefusalLines;
  /** Failures of requests that are not answered yet. */
  readonly #failures = new WeakMap<Request, LoggedFailure>();
  /** The reasons why the access policy or a decision point has denied requests. */
  readonly #denials = new WeakMap<Request, string>();
  #inFlightCount = 0;
  /** Those of them that another process has passed on, and counts too. */
  #passedOnCount = 0;

  constructor(parts: RequestRecorderParts) {
    this.#parts = parts;
    this.#refusalLines = new RefusalLines(parts.log, parts.onLimit);
  }

  /** Keeps why a request was denied, for its line. Clients never see it. */
  onVerdict({ request, effect, why }: Verdict): void {
    if (request !== undefined && effect === 'deny') this.#denials.set(request, why);
  }

  get inFlightCount(): number {
    return this.#inFlightCount;
  }

  /** The requests in flight that no other process of the gateway counts. */
  get ownInFlightCount(): number {
    return this.#inFlightCount - this.#passedOnCount;
  }

  /** Records the arrival of a request. Returns its span, if requests are traced. */
  begin(request: Request, headers: HeaderLookup | undefined, isPassedOn = false): Span | undefined {
    this.beginUntraced(isPassedOn);
    return this.#parts.tracing?.beginRequest(request, headers);
  }

  /** Records the arrival of a request that is not traced: `initialize`. */
  beginUntraced(isPassedOn = false): void {
    this.#inFlightCount++;
    if (isPassedOn) this.#passedOnCount++;
    else this.#parts.metrics.requestsInFlight.add();
  }

  #removeInFlight(isPassedOn = false): void {
    this.#inFlightCount--;
    if (isPassedOn) this.#passedOnCount--;
    else this.#parts.metrics.requestsInFlight.remove();
  }

  /**
   * Records the answer to a request: its method, caller and upstream, its outcome and its duration. Ends its span. Never throws: the client
   * gets its answer even if it cannot be recorded.
   */
  end(answered: AnsweredRequest): void {
    this.#removeInFlight(answered.isPassedOn);
    const { caller, request, exchange, answer, span } = answered;
    const { method } = request;
    const error = this.#errorOf(answered);
    try {
      if (answered.isAnsweredElsewhere !== true) this.#record(answered, error);
    } catch (thrown) {
      this.#parts.log.error({ err: thrown, method: nameOf(method) }, 'request not recorded');
    }
    if (span === undefined) return;
    const upstream = exchange?.upstream;
    // A prompt that was sent to an upstream is in the catalog.
    const isPrompt = upstream !== undefined && method === 'prompts/get';
    const prompt = isPrompt ? request.params?.string('name') : undefined;
    const { transport } = this.#parts;
    const operation = { method, tool: exchange?.tool, error, revision: caller.revision ?? '', transport };
    span.end(endOfOperation({ ...operation, prompt, id: request.id, answer, upstream }));
  }

  /** Returns the error type of an answer. A translated error of the upstream keeps its data, which does not choose the type. */
  #errorOf({ request, exchange, answer }: AnsweredRequest): ErrorType | undefined {
    const { outcome, toldFailure } = exchange ?? {};
    if (toldFailure !== undefined && answer.kind === 'result') return toldFailure;
    if (outcome?.answer === answer) return outcome.error;
    const isOwn = exchange?.failure !== undefined || this.#failures.has(request);
    const typeOf = !isOwn && isUpstreamError(exchange) ? upstreamErrorTypeOf : errorTypeOf;
    return typeOf(request.method, answer);
  }

  /** Records that an `initialize` has opened a session, after its answer. */
  sessionOpened(session: ConnectionHolder): void {
    this.#parts.audit?.session('opened', session, this.#parts.clientOf(session.caller));
  }

  #record(answered: AnsweredRequest, error: ErrorType | undefined): void {
    const { metrics, transport, audit, clientOf } = this.#parts;
    const { caller: sender, describedBy = sender, holder, request, exchange, answer, durationMs: ms, span } = answered;
    // An `initialize` that failed has settled on no revision.
    const { revision = '' } = sender;
    // The process that has passed on a part of a stream counts the stream.
    if (answered.isPassedOn !== true || request.method !== 'subscriptions/listen') {
      metrics.recordRequest({ method: request.method, tool: exchange?.tool, error, revision, transport }, ms / 1000);
    }
    // Asked here, so that a request without a line costs nothing more.
    const failure = error === undefined ? undefined : this.#failures.get(request);
    const hasLine = this.#wantsLine(error) && failure?.isSuppressed !== true;
    if (audit === undefined && !hasLine) return;
    const client = isCaller(describedBy) ? clientOf(describedBy) : undefined;
    const recorded = { request, exchange, answer, error, ms };
    audit?.end({ ...recorded, sender, holder, client, traceId: span?.traceId });
    if (!hasLine) return;
    const { reason } = failure ?? {};
    const denied = error === undefined ? undefined : this.#denials.get(request);
    this.#writeLine(sender, holder, { ...recorded, kind: 'request', client, message: request, reason, denied, span });
  }

  /**
   * Records a notification of a client, or its response to a request of the gateway.
   *
   * @param session undefined in the modern era.
   */
  message(sender: MessageSource, session: ConnectionHolder | undefined, message: Notification | Response): void {
    this.#parts.audit?.message(sender, session, message);
    if (!this.#wantsLine(undefined)) return;
    const kind = message.kind === 'notification' ? 'notification' : 'response';
    this.#writeLine(sender, session, { kind, client: session && this.#parts.clientOf(session.caller), message });
  }

  #wantsLine(error: ErrorType | undefined): boolean {
    return this.#parts.requestLog?.wants(error) === true;
  }

  #writeLine(sender: MessageSource, holder: ConnectionHolder | undefined, outcome: Outcome): void {
    const { requestLog } = this.#parts;
    const { kind, client, message, exchange, answer, error, reason, denied, ms, span } = outcome;
    const caller = isCaller(sender) ? sender : undefined;
    requestLog?.write({
      kind,
      method: 'method' in message ? message.method : undefined,
      id: 'id' in message ? message.id : undefined,
      tool: exchange?.tool,
      upstreamTool: exchange?.upstreamTool,
      upstream: exchange?.upstream,
      session: holder?.digest,
      client,
      principal: sender.principal.label,
      view: sender.view,
      era: caller === undefined ? undefined : eraOf(caller.revision),
      revision: caller?.revision,
      error,
      reason,
      denied,
      code: answer?.kind === 'error' ? answer.error.code : undefined,
      bytesIn: bytesOf(message),
      bytesOut: answer?.kind === 'result' ? resultBytes(answer) : undefined,
      ms,
      traceId: span?.traceId,
    });
  }

  /**
   * Logs a failure, and returns the answer that reports it to the client. If the request has a line anyway, that tells the failure.
   * A failure of the program or with a cause has a line of its own.
   */
  fail(thrown: unknown, failed: FailedRequest): Answer {
    const { metrics } = this.#parts;
    // Texts of clients were checked as a whole. Those of upstreams are parsed as far as they are needed, and may turn out malformed late.
    const isBroken = thrown instanceof JsonTextError;
    const error = isBroken ? new GatewayError('upstream-protocol', {}, thrown) : toGatewayError(thrown);
    this.#failures.set(failed.request, this.#logFailure(error, failed));
    if (SHED.has(error.code)) metrics.countShed(error.code);
    return toAnswer(error, failed.span?.traceId);
  }

  /** Logs a failure, unless its request has too many lines, or one that tells the failure. */
  #logFailure(error: GatewayError, { request, principal, span, isAwaited = true }: FailedRequest): LoggedFailure {
    const { log } = this.#parts;
    const { code, cause, detail } = error;
    const { method } = request;
    if (code !== 'internal-error' && !mayHaveRun(error) && !this.#refusalLines.admits(principal)) {
      return SUPPRESSED;
    }
    const isWhole = cause === undefined && code !== 'internal-error' && !log.isLevelEnabled('debug');
    if (isAwaited && isWhole && this.#wantsLine(code)) {
      // The line has the name of an unknown method anyway.
      const reason = detail.message === method ? undefined : shownText(error.message);
      return { reason, isSuppressed: false };
    }
    const fields = { err: error, code, method: nameOf(method), upstream: detail.upstream, traceId: span?.traceId };
    log[code === 'internal-error' ? 'error' : 'info'](fields, 'request not answered by an upstream');
    return TOLD;
  }

  /** Writes the buffered lines of the request log, and the counts of requests without a line. */
  flush(): void {
    this.#refusalLines.flush();
    this.#parts.requestLog?.flush();
  }
}

function isCaller(sender: MessageSource): sender is Caller {
  return sender.revision !== undefined && sender.capabilities !== undefined;
}

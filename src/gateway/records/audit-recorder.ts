import { memberOf } from '../../json/record.ts';
import type { AuditEvent, AuditOutcome, AuditVerdict } from '../../audit/audit-event.ts';
import type { AuditTrail } from '../../audit/audit-trail.ts';
import { isWithheldUri } from '../../catalog/resources/resources.ts';
import { GatewayError } from '../../errors.ts';
import { isObjectText, type RawObject } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { isRetry } from '../../protocol/input-required.ts';
import {
  type Answer,
  type Notification,
  parsed,
  type Request,
  type Response,
  type Result,
  type RpcError,
} from '../../protocol/jsonrpc.ts';
import type { ErrorType } from '../../telemetry/operation.ts';
import type { LoggedClient } from '../../telemetry/request-log.ts';
import type { Caller } from '../front/caller.ts';
import type { Verdict } from '../exchange/gate.ts';
import { type ConnectionHolder, digestOf } from '../exchange/connection-holder.ts';
import { bytesOf, resultBytes } from './message-bytes.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { endpointPath } from '../../endpoint-path.ts';

export type AuditedSender = Pick<Caller, 'principal' | 'view' | 'hops'>;

export interface AuditedRequest {
  readonly sender: AuditedSender;
  readonly holder: ConnectionHolder | undefined;
  readonly client: LoggedClient | undefined;
  readonly request: JudgedRequest;
  readonly exchange: OpenExchange | undefined;
  readonly answer: Answer;
  readonly error: ErrorType | undefined;
  readonly ms: number;
  readonly traceId: string | undefined;
}

/** Errors by which the gateway refuses a request that it could serve. */
const REFUSALS: ReadonlySet<string> = new Set([
  'unauthorized',
  'forbidden',
  'too-many-requests',
  'overloaded',
  'rate-limited',
  'repeated-call',
  'draining',
  'audit-unavailable',
  'access-unavailable',
]);

const ALLOWED: AuditVerdict = { decision: 'allowed' };
const DENIED: AuditVerdict = { decision: 'denied' };
const REFUSED: AuditVerdict = { decision: 'refused' };
const WITHHELD: AuditVerdict = { decision: 'denied', rule: { name: 'lock' } };

const VERDICT = Symbol('verdict');

/** A request whose verdict is kept for its record. An entry of a `WeakMap` for each request would cost the collector several µs. */
interface JudgedRequest extends Request {
  [VERDICT]?: AuditVerdict;
}

/** Records what clients do in the audit log: their requests with the outcome, their other messages, and their sessions. */
export class AuditRecorder {
  readonly #trail: AuditTrail;
  /** Numbers of the records of requests that were sent. */
  readonly #begun = new WeakMap<Request, number>();

  constructor(trail: AuditTrail) {
    this.#trail = trail;
  }

  /** True if requests are recorded before they are sent. */
  get isRequired(): boolean {
    return this.#trail.isRequired;
  }

  /**
   * Records that a request is about to be sent, and waits for it.
   *
   * @param upstream undefined if it is not known yet, or there are several.
   * @param upstreamName the upstream's own name of the called tool; undefined if the request calls none.
   * @throws {GatewayError} `audit-unavailable`: the request must not be sent.
   */
  async begin(
    request: Request,
    caller: AuditedSender,
    upstream: string | undefined,
    upstreamName?: string,
  ): Promise<void> {
    const event: AuditEvent = {
      kind: 'begun',
      ...senderFields(caller),
      upstream,
      method: request.method,
      name: nameIn(request),
      upstreamName,
      requestId: request.id,
      isRetry: isRetry(request.params) || undefined,
      hops: caller.hops,
      ...this.#trail.argumentsOf(request.params),
    };
    this.#begun.set(request, await this.#trail.commit(event));
  }

  /** Keeps the verdict of the access policy about a request for its record. */
  readonly onVerdict = ({ request, effect, rule, external, lacking }: Verdict): void => {
    const judged: JudgedRequest | undefined = request;
    if (judged === undefined) return;
    const verdict = external === undefined ? verdictBy(rule, effect) : { ...DENIED, rule: { name: external } };
    judged[VERDICT] = lacking === undefined ? verdict : { ...verdict, reason: lacking.text };
  };

  /** Keeps the name of the rate or limit that refuses a request, for its record. */
  refuse(request: JudgedRequest, rule: string): void {
    request[VERDICT] = { decision: 'refused', rule: { name: rule } };
  }

  /** Records an answered request. The error of the answer tells the decision, unless the access policy or a limit has refused the request. */
  end(audited: AuditedRequest): void {
    const { sender, holder, client, request, exchange, answer, ms, traceId } = audited;
    const isUpstreams = answer.kind === 'error' && isUpstreamError(exchange);
    const error = isUpstreams ? upstreamErrorOf(exchange, audited.error) : audited.error;
    const outcome = outcomeOf(request, answer, error);
    const verdict = verdictOf(request[VERDICT] ?? lockVerdict(holder, request, error), error);
    // Its error is that of an unknown name, which does not say that a call which had begun to wait was never sent.
    const isHeldBack = verdict.decision === 'denied' && exchange?.wasSent !== true && !isRetry(request.params);
    const executed = isHeldBack ? 'no' : executedOf(request, exchange, answer, outcome);
    const { principal, label, endpoint } = senderFields(sender);
    const { argumentsDigest, argumentsText } = this.#trail.argumentsOf(request.params);
    // Each member by its name: a literal with spread objects takes several times as long.
    this.#trail.record({
      kind: 'request',
      principal,
      label,
      endpoint,
      client: client?.name,
      clientVersion: client?.version,
      session: holder?.digest,
      upstream: upstreamOf(exchange),
      method: request.method,
      name: nameIn(request),
      upstreamName: exchange?.upstreamTool,
      requestId: request.id,
      decision: verdict.decision,
      rule: verdict.rule,
      reason: verdict.reason,
      outcome,
      error,
      code: answer.kind === 'error' ? answer.error.code : undefined,
      executed: isUpstreams ? 'unknown' : executed,
      begun: this.#begun.get(request),
      isRetry: isRetry(request.params) || undefined,
      isReplay: exchange?.isReplay === true || undefined,
      hops: sender.hops,
      ms: Math.round(ms * 1_000) / 1_000,
      bytesIn: bytesOf(request),
      bytesOut: answer.kind === 'result' ? resultBytes(answer) : undefined,
      traceId,
      argumentsDigest,
      argumentsText,
    });
  }

  message(sender: AuditedSender, holder: ConnectionHolder | undefined, message: Notification | Response): void {
    this.#trail.record({
      kind: message.kind === 'notification' ? 'notification' : 'response',
      ...senderFields(sender),
      session: holder?.digest,
      method: message.kind === 'notification' ? message.method : undefined,
      requestId: message.kind === 'notification' ? cancelledId(message) : message.id,
      outcome: message.kind === 'error' ? 'error' : undefined,
      code: message.kind === 'error' ? message.error.code : undefined,
      bytesIn: bytesOf(message),
    });
  }

  session(event: 'opened' | 'ended', holder: ConnectionHolder, client?: LoggedClient): void {
    this.#trail.record({
      kind: 'session',
      event,
      ...senderFields(holder.caller),
      client: client?.name,
      clientVersion: client?.version,
      session: holder.digest,
    });
  }
}

function senderFields({ principal, view }: AuditedSender): Pick<AuditEvent, 'principal' | 'label' | 'endpoint'> {
  const { key, label } = principal;
  return { principal: key, label: label === key ? undefined : label, endpoint: endpointPath(view) };
}

function verdictBy(rule: Verdict['rule'], effect: Verdict['effect']): AuditVerdict {
  const plain = effect === 'allow' ? ALLOWED : DENIED;
  return rule === undefined ? plain : { ...plain, rule: { name: rule.name, ...rule.place } };
}

/** Returns the decision about a request: the one that was kept, unless it was refused after the access policy had allowed it. */
function verdictOf(kept: AuditVerdict | undefined, error: ErrorType | undefined): AuditVerdict {
  if (kept !== undefined && kept.decision !== 'allowed') return kept;
  return error !== undefined && REFUSALS.has(error) ? REFUSED : (kept ?? ALLOWED);
}

/** Returns the verdict about an item that the lock withholds, so that it is answered as an unknown one; else undefined. */
function lockVerdict(
  holder: ConnectionHolder | undefined,
  request: Request,
  error: ErrorType | undefined,
): AuditVerdict | undefined {
  if (holder === undefined) return undefined;
  if (error === 'unknown-resource') {
    const { resources, view } = holder.catalog;
    const uri = request.params?.string('uri');
    return uri !== undefined && isWithheldUri(resources, view.upstreams, uri) ? WITHHELD : undefined;
  }
  if (error !== 'unknown-tool' && error !== 'unknown-prompt') return undefined;
  const { tools, prompts } = holder.catalog.callables;
  const { withheld } = error === 'unknown-tool' ? tools : prompts;
  const name = nameIn(request);
  return name !== undefined && withheld.has(name) ? WITHHELD : undefined;
}

/** Returns whether the last answer of the upstream is an error. Its data is text of the upstream, and may look like that of the gateway. */
export function isUpstreamError(exchange: OpenExchange | undefined): boolean {
  const answer = exchange?.outcome?.answer;
  return answer !== undefined && !(answer instanceof GatewayError) && answer.kind === 'error';
}

/** Returns the error of a request that its upstream has answered with one: that for which the gateway gave it up, or the upstream's. */
function upstreamErrorOf(exchange: OpenExchange | undefined, error: ErrorType | undefined): ErrorType {
  const failure = exchange?.failure;
  return failure !== undefined && failure.code === error ? failure.code : 'rpc_error';
}

function outcomeOf({ params }: Request, answer: Answer, error: ErrorType | undefined): AuditOutcome {
  if (error === 'cancelled') return 'cancelled';
  if (error === 'tool_error') return 'tool-error';
  if (answer.kind === 'error' || error !== undefined) return 'error';
  // The text of a list is made when it is read.
  if (answer.tail !== undefined) return 'ok';
  const asksForTask = params?.raw('task') !== undefined;
  // Most results have no such member at any depth, so their members are not read.
  if (!TYPED.test(answer.result) && !(asksForTask && WITH_TASK.test(answer.result))) return 'ok';
  const result = membersOf(answer);
  const type = result?.string('resultType');
  if (type === 'input_required') return 'input-required';
  return type === 'task' || (asksForTask && isObjectText(result?.raw('task'))) ? 'task' : 'ok';
}

const TYPED = /"resultType"\s*:\s*"(?:input_required|task)"/;
const WITH_TASK = /"task"\s*:\s*\{/;

/** Returns the members of a result; undefined if one is there twice. The gateway takes no such result for a question or a task. */
function membersOf(answer: Result): RawObject | undefined {
  return unlessMalformed(() => parsed(answer).parsedResult, undefined);
}

function upstreamOf(exchange: OpenExchange | undefined): string | undefined {
  return exchange?.upstream ?? exchange?.taskUpstream;
}

/** Returns whether the upstream ran the request; undefined for a request that the gateway answers itself. */
function executedOf(
  { params }: Request,
  exchange: OpenExchange | undefined,
  answer: Answer,
  outcome: AuditOutcome,
): AuditEvent['executed'] {
  // The call waits for its client, and may have run in part.
  if (outcome === 'input-required') return 'unknown';
  const wasAnswered = exchange?.outcome !== undefined;
  if (answer.kind === 'result') {
    if (upstreamOf(exchange) === undefined) return undefined;
    if (!wasAnswered) return 'no';
    // The upstream has asked instead, or its task is cancelled.
    return exchange?.toldFailure === undefined ? 'yes' : 'unknown';
  }
  // A retry is about a call that may have run.
  const wasHeld = upstreamOf(exchange) === undefined && !isRetry(params);
  return executedIn(answer.error) ?? (wasHeld ? 'no' : 'unknown');
}

function executedIn({ data }: RpcError): AuditEvent['executed'] {
  const executed = memberOf(data, 'executed');
  return executed === 'no' || executed === 'yes' || executed === 'unknown' ? executed : undefined;
}

/** The member of the params that names what a request is about, by method. The gateway routes by the same one. */
const NAMED_BY: ReadonlyMap<string, 'name' | 'uri'> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['resources/subscribe', 'uri'],
  ['resources/unsubscribe', 'uri'],
]);

/** Returns the name of the thing that a request is about. Members that its method does not have are ignored: they would hide the name. */
function nameIn({ method, params }: Request): string | undefined {
  if (params === undefined) return undefined;
  if (method.startsWith('tasks/')) {
    const task = params.string('taskId');
    return task === undefined ? undefined : digestOf(task);
  }
  if (method === 'completion/complete') {
    const ref = params.object('ref');
    return ref === undefined ? undefined : namedIn(ref, ref.string('type') === 'ref/resource' ? 'uri' : 'name');
  }
  const member = NAMED_BY.get(method);
  return member === undefined ? undefined : namedIn(params, member);
}

function namedIn(params: RawObject, member: 'name' | 'uri'): string | undefined {
  const text = params.string(member);
  return text === undefined || member === 'name' ? text : withoutSecrets(text);
}

/** Returns a URI without its user name, query and fragment. */
function withoutSecrets(uri: string): string {
  return uri.replace(/^([a-z][\w+.-]*:\/\/)[^/?#]*@/i, '$1').replace(/[?#].*$/s, '');
}

function cancelledId({ method, params }: Notification): string | undefined {
  return method === 'notifications/cancelled' ? params?.raw('requestId') : undefined;
}

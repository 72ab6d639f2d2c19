import { setTimeout as sleep } from 'node:timers/promises';
import type { Source } from '../../catalog/names/named-items.ts';
import { sourceOf } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { type InputRequired, type Retry, withRetry } from '../../protocol/input-required.ts';
import type { RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { type Answer, parsed } from '../../protocol/jsonrpc.ts';
import { type Header, paramHeaders } from '../../protocol/framing/mcp-headers.ts';
import { type Era, featuresOf, type Revision } from '../../protocol/revisions.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { type ResultTranslator, toolFailure, type UpstreamResult } from '../forward/result-translator.ts';
import type { AuditRecorder } from '../records/audit-recorder.ts';
import { resultWithin } from '../../deadline.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { collectInput } from '../questions/collect-input.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { withStateLoss } from '../connections/state-losses.ts';
import { type Gate, insufficientScope } from '../exchange/gate.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { ConnectionHolder, Link, Upstream, Upstreams } from '../exchange/connection-holder.ts';
import type { ResourceRead, ResourceCache } from '../forward/resource-cache.ts';
import { namesUnlistedItem, removedUpstream, type UpstreamRoute, route, unknownItem } from '../exchange/route.ts';
import type { Sender } from '../forward/sender.ts';
import type { CallLimits } from './call-limits.ts';
import type { KeyedCalls } from './keyed-calls.ts';
import { type CallOutcome, inputRequired, urlsRequired, readIncomplete } from './call-outcome.ts';
import type { TaskCalls } from './task-calls.ts';

export interface CallsParts {
  readonly questionPolicy: QuestionPolicy;
  readonly upstreams: Upstreams;
  readonly links: HolderLinks;
  readonly listRefresher: ListRefresher;
  readonly translator: ResultTranslator;
  readonly resourceCache: ResourceCache;
  readonly sender: Sender;
  readonly taskCalls: TaskCalls;
  readonly gate: Pick<Gate, 'judge' | 'report' | 'changedMs'>;
  /** Returns whether the definitions of an upstream are compared with the lock. */
  readonly isPinned: (upstream: string) => boolean;
  readonly limits: Pick<CallLimits, 'isOff' | 'admit'>;
  readonly keyed: Pick<KeyedCalls, 'keyOf' | 'run'>;
  /** Records requests before they are sent; undefined unless the config requires that. */
  readonly audit: Pick<AuditRecorder, 'begin'> | undefined;
  /** Runs when a call ends because its upstream asks again and again. */
  readonly onLimit: (limit: LimitName) => void;
}

/** An answer whose result is parsed. */
type ParsedAnswer = ReturnType<typeof parsed> | Extract<Answer, { kind: 'error' }>;

/** A call at one upstream that has a slot there. */
type UpstreamCall = (exchange: OpenExchange, upstream: Upstream, link: Link, to: UpstreamRoute) => Promise<CallOutcome>;

/** The pause before a call is sent again. The gateway notices the end of a process within this time. */
const RESEND_MS = 150;

/** The longest time that the error of a read waits for lists. */
const LISTS_WAIT_MS = 2_000;

/** Sends client requests to their upstreams, at most once each, and translates the answers. */
export class Calls {
  readonly #parts: CallsParts;
  /** The call at an upstream, by the era of the link. */
  readonly #callIn: Readonly<Record<Era, UpstreamCall>> = {
    legacy: (exchange, upstream, link, to) => this.#callLegacy(exchange, upstream, link, to),
    modern: (exchange, upstream, link, to) => this.#callModern(exchange, upstream, link, to),
  };

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /**
   * Sends a request to the upstream of its route, as soon as the upstream has a free slot. Sends it again if the upstream was
   * lost before it could receive it. A cached read needs no slot and no link. Only the call of a modern client can end with
   * questions or URLs: a client with a session is asked during its call.
   *
   * @throws {GatewayError} if the upstream has not answered; `audit-unavailable` if the request cannot be
   *   recorded; `rate-limited`, `repeated-call`, `overloaded` if the principal has used up a limit; those of
   *   {@link KeyedCalls.run} if it has an idempotency key.
   */
  send(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    exchange.upstream = to.upstream;
    exchange.view = exchange.client.catalog.view;
    const { limits, keyed } = this.#parts;
    const key = keyed.keyOf(exchange);
    if (key !== undefined) return keyed.run(exchange, to, key, (sent) => this.#sendWithinLimits(exchange, sent));
    return limits.isOff ? this.#send(exchange, to) : this.#sendWithinLimits(exchange, to);
  }

  /** Sends a request that the limits of its principal allow. */
  async #sendWithinLimits(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    const { limits } = this.#parts;
    if (limits.isOff) return await this.#send(exchange, to);
    const counted = await limits.admit(exchange, to);
    try {
      return await this.#send(exchange, to);
    } catch (thrown) {
      if (!exchange.wasSent) counted.refund();
      throw thrown;
    } finally {
      counted.end();
    }
  }

  async #send(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) throw removedUpstream(to.upstream);
    const { holder, request } = exchange;
    const { audit } = this.#parts;
    if (audit !== undefined) await audit.begin(request, exchange.client.caller, to.upstream, to.upstreamTool);
    this.#assertAllowed(exchange, to, exchange.allowedItem !== undefined);
    const cached = this.#readCached(exchange, upstream, to);
    if (cached !== undefined) return cached;
    const queued = exchange.acquireSlot(upstream);
    if (queued !== undefined) await queued;
    const { links } = this.#parts;
    try {
      if (queued !== undefined) {
        this.#assertAllowed(exchange, to, true);
        // Another request may have read the resource while this one was in the queue.
        const read = this.#readCached(exchange, upstream, to);
        if (read !== undefined) return read;
      }
      for (let attempt = 1; ; attempt++) {
        const open = links.findOpen(holder, upstream);
        const link = open ?? (await links.openFor(exchange, holder, upstream));
        upstream.beginCall(link);
        try {
          this.#assertAllowed(exchange, to, attempt > 1 || open === undefined);
          return await this.#callIn[link.era](exchange, upstream, link, to);
        } catch (thrown) {
          if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
          // A process stops reading a moment before the gateway notices its end.
          if (links.findOpen(holder, upstream) === link) await sleep(RESEND_MS);
        } finally {
          upstream.endCall(link);
        }
      }
    } finally {
      exchange.releaseSlot();
    }
  }

  /**
   * Judges a call that has waited, or whose access policy has changed, by the policy and the lists of now: a reload may deny it, and a list that was
   * read meanwhile may differ from the lock.
   *
   * @param hasWaited whether the call has just waited.
   * @throws {GatewayError} `insufficient-scope`, `unknown-tool`, `unknown-prompt`, `unknown-resource`, `invalid-params`
   */
  #assertAllowed({ client, holder, request, judgedMs }: OpenExchange, to: UpstreamRoute, hasWaited: boolean): void {
    const { gate, isPinned, listRefresher } = this.#parts;
    if (!hasWaited && gate.changedMs < judgedMs) return;
    const verdict = gate.judge(client.caller, request, to);
    if (verdict?.effect === 'deny') {
      gate.report(verdict);
      throw insufficientScope(verdict) ?? unknownItem(request).error;
    }
    if (!isPinned(to.upstream)) return;
    listRefresher.bringUpToDate(holder);
    const again = route(client.catalog, request);
    if (again.kind === 'nowhere') throw again.error;
  }

  /** Makes a call at a legacy upstream, as a task if the client or the tool asks for one. */
  async #callLegacy(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    { params, source }: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { links, taskCalls } = this.#parts;
    const { client, holder, request } = exchange;
    if (client.logLevel !== undefined) await links.ensureLogLevel(holder, link, client.logLevel);
    exchange.throwIfCancelled();
    const sent = paramsKnownTo(request.method, link.hello.revision, client.dialect.withoutEnvelope(params));
    const plan = taskCalls.planOf(exchange, upstream, link, sent, source);
    let answer: Answer;
    if (plan === 'plain') {
      answer = await this.#parts.sender.send(exchange, upstream, link, { params: sent.with('task', undefined) }).answer;
    } else {
      const called = await taskCalls.call(plan, exchange, upstream, link, sent);
      if (called.isTranslated) return called.answer;
      answer = called.answer;
    }
    if (answer.kind === 'error' && answer.error.code === RPC.urlElicitationRequired && client.dialect.asksInAnswers) {
      return urlsRequired(upstream.id, exchange, answer.error);
    }
    if (answer.kind === 'error') await this.#awaitLists(exchange);
    return this.#toOutcome(exchange, link, source, answer);
  }

  /**
   * Waits for new lists before an error is translated, if the translation depends on them: a list that is not read yet may have the
   * resource or prompt.
   */
  async #awaitLists({ client, holder, request }: OpenExchange): Promise<void> {
    if (!client.dialect.marksUnlistedItems || !namesUnlistedItem(client.catalog, request)) return;
    const refreshing = this.#parts.listRefresher.refreshFor(holder);
    if (refreshing !== undefined) await resultWithin(refreshing, LISTS_WAIT_MS);
  }

  /**
   * Translates an answer for the client, and adds a loss of the upstream's state that is not reported yet. Waits while that state is being recorded:
   * another process, or this one after a restart, could not report its loss.
   */
  #toOutcome(
    exchange: OpenExchange,
    link: Link,
    source: Source | undefined,
    answer: Answer,
  ): CallOutcome | Promise<CallOutcome> {
    const from = { upstream: link.upstream, era: link.era, source };
    const completed = orNoCompletion(exchange.request.method, link, answer);
    const storing = exchange.holder.stateRecords?.get(from.upstream);
    if (storing === undefined) return this.#translate(exchange, from, completed);
    return storing.then(() => this.#translate(exchange, from, completed));
  }

  #translate(exchange: OpenExchange, from: UpstreamResult, answer: Answer): CallOutcome {
    return withStateLoss(exchange.holder, from.upstream, this.#parts.translator.toClient(exchange, from, answer));
  }

  /** Returns the outcome of a read that a cached result answers; undefined if there is none. */
  #readCached(exchange: OpenExchange, upstream: Upstream, { params, source }: UpstreamRoute): CallOutcome | undefined {
    if (exchange.request.method !== 'resources/read') return undefined;
    const { holder } = exchange;
    const era = upstream.servingEra(holder.era);
    if (era === undefined || !UPSTREAM_DIALECTS[era].allowsCaching) return undefined;
    const cached = this.#parts.resourceCache.find(readOf(holder, upstream, params), performance.now());
    if (cached === undefined) return undefined;
    const from = { upstream: upstream.id, era, source, ageMs: cached.ageMs };
    return this.#parts.translator.toClient(exchange, from, cached.answer);
  }

  /** Makes a call at a modern upstream. While the upstream asks, asks a client with a session and sends the call again. */
  async #callModern(exchange: OpenExchange, upstream: Upstream, link: Link, to: UpstreamRoute): Promise<CallOutcome> {
    const { params, source: listed } = to;
    const { resourceCache, taskCalls } = this.#parts;
    const isRead = exchange.request.method === 'resources/read';
    const version = isRead ? resourceCache.versionOf(upstream.id) : 0;
    let source = listed;
    let sent = params;
    for (let round = 1; round <= LIMITS.inputRounds; round++) {
      let answer = await this.#sendModern(exchange, upstream, link, sent, source);
      if (isSchemaOld(answer)) {
        const relisted = await this.#relistSource(exchange, upstream);
        // A tool that is not listed any more, or withheld by the lock, is not called again.
        if (relisted !== undefined) {
          this.#assertAllowed(exchange, { ...to, source: relisted }, true);
          source = relisted;
          answer = await this.#sendModern(exchange, upstream, link, sent, source);
        }
      }
      const incomplete =
        answer.kind === 'result' ? readIncomplete(upstream.id, exchange, answer.parsedResult) : undefined;
      if (incomplete === undefined) {
        if (answer.kind === 'error') await this.#awaitLists(exchange);
        if (isRead) resourceCache.store(readOf(exchange.holder, upstream, sent), version, answer, performance.now());
        return this.#toOutcome(exchange, link, source, answer);
      }
      if (incomplete.kind === 'task') {
        return await taskCalls.onCreated(exchange, upstream, link, incomplete.state, source);
      }
      const { asked } = incomplete;
      if (exchange.client.dialect.asksInAnswers) return inputRequired(upstream.id, exchange, asked);
      const retry = await this.#collectInput(exchange, upstream, asked);
      if (!('requestState' in retry)) return retry;
      sent = withRetry(params, retry);
      exchange.releaseSlot();
      await exchange.acquireSlot(upstream);
      this.#assertAllowed(exchange, to, true);
    }
    this.#parts.onLimit('inputRounds');
    const message = `upstream "${upstream.id}" asked ${LIMITS.inputRounds} times and is not done`;
    throw new GatewayError('upstream-protocol', { upstream: upstream.id, message });
  }

  /** Sends a call to a modern upstream once. @param source the called tool, whose schema names the parameters in headers. */
  async #sendModern(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    params: RawObject,
    source: Source | undefined,
  ): Promise<ParsedAnswer> {
    exchange.throwIfCancelled();
    const answer = await this.#parts.sender.send(exchange, upstream, link, {
      // A modern upstream itself decides whether to create a task.
      params: exchange.request.method === 'tools/call' ? params.with('task', undefined) : params,
      paramHeaders: headersOf(source, params),
    }).answer;
    return answer.kind === 'result' ? parsed(answer) : answer;
  }

  /** Reads the lists of the upstream again. Returns the called tool in the new catalog; undefined if it is not there. */
  async #relistSource(exchange: OpenExchange, upstream: Upstream): Promise<Source | undefined> {
    const { holder } = exchange;
    const audience = upstream.audienceOf(holder.principal);
    await upstream.relist(holder.era, upstream.listsByCapabilities ? holder : NO_FEATURES, audience);
    this.#parts.listRefresher.bringUpToDate(holder);
    return currentSource(exchange);
  }

  /** Returns the client's answers, or the result of the call if the client refuses. */
  async #collectInput(exchange: OpenExchange, upstream: Upstream, asked: InputRequired): Promise<Retry | Answer> {
    try {
      return await collectInput(this.#parts.questionPolicy, exchange, upstream.id, asked);
    } catch (thrown) {
      const isRefusal = thrown instanceof GatewayError && thrown.code === 'client-unreachable';
      if (!isRefusal || exchange.request.method !== 'tools/call') throw thrown;
      return toolFailure(thrown.message);
    }
  }
}

const NO_COMPLETION: Answer = { kind: 'result', result: '{"completion":{"values":[]}}' };

/**
 * Returns the empty completion if an upstream does not declare completions and has no such method: the gateway declares them for all of
 * its upstreams. Some answer without having declared it.
 */
function orNoCompletion(method: string, { hello }: Link, answer: Answer): Answer {
  if (answer.kind === 'result' || method !== 'completion/complete') return answer;
  const isUndeclared = hello.capabilities.raw('completions') === undefined;
  return isUndeclared && answer.error.code === RPC.methodNotFound ? NO_COMPLETION : answer;
}

/** Returns params without the members that an upstream of this revision does not know. */
function paramsKnownTo(method: string, revision: Revision, params: RawObject): RawObject {
  if (method !== 'completion/complete' || featuresOf(revision).completionContext) return params;
  return params.with('context', undefined);
}

/** Returns a read with the clients that its result may answer. */
function readOf({ principal, capabilityKey }: ConnectionHolder, upstream: Upstream, params: RawObject): ResourceRead {
  // The answer may depend on the principal, unless one connection serves all clients.
  const publicScope = upstream.config.isolation === 'shared' ? upstream.audienceOf(principal) : principal;
  return { upstream: upstream.id, params, privateScope: `${principal} ${capabilityKey}`, publicScope };
}

/** Returns whether the upstream refused the call before it ran, because the schema of the tool in the catalog is old. */
function isSchemaOld(answer: ParsedAnswer): boolean {
  return answer.kind === 'error' && answer.error.code === RPC.headerMismatch;
}

const NO_HEADERS: readonly Header[] = [];

/** Returns the `Mcp-Param-…` headers of a call, by the schema of the tool. */
function headersOf(source: Source | undefined, params: RawObject): readonly Header[] {
  if (source === undefined || source.headerParams.length === 0) return NO_HEADERS;
  return paramHeaders(source.headerParams, params.object('arguments'));
}

function currentSource({ client: { catalog }, tool }: OpenExchange): Source | undefined {
  const target = tool === undefined ? undefined : catalog.tools.get(tool);
  return target === undefined ? undefined : sourceOf(catalog, target);
}

/** Returns whether the upstream has not received the request, so that it may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const { code, executed } = thrown;
  return executed === 'no' && (code === 'upstream-session-lost' || code === 'upstream-lost');
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { Source } from '../../catalog/names/named-items.ts';
import { isListedResource, sourceOf } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { type InputRequired, type Retry, withRetry } from '../../protocol/input-required.ts';
import type { RawObject } from '../../json/json.ts';
import { type Answer, parsed } from '../../protocol/jsonrpc.ts';
import { type Header, paramHeaders } from '../../protocol/framing/mcp-headers.ts';
import { type Era, featuresOf, type Revision } from '../../protocol/revisions.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { endAfter, traceWait } from '../../telemetry/tracing/mcp-spans.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { type ResultTranslator, toolFailure, type UpstreamResult } from '../forward/result-translator.ts';
import { waitAtMost } from '../exchange/at-most.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { collectInput, MAX_ROUNDS } from '../questions/collect-input.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { withStateLoss } from '../connections/state-losses.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { Link, Upstream, Upstreams } from '../exchange/connection-holder.ts';
import type { ResourceCache } from '../forward/resource-cache.ts';
import type { UpstreamRoute, Route } from '../exchange/route.ts';
import type { Sender } from '../forward/sender.ts';
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
}

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
   * lost before it could receive it. Only the call of a modern client can end with questions or URLs: a client with a
   * session is asked during its call.
   *
   * @throws {GatewayError} if the upstream has not answered.
   */
  async send(exchange: OpenExchange, to: Route): Promise<CallOutcome> {
    if (to.kind === 'nowhere') throw to.error;
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) {
      const message = `upstream "${to.upstream}" was removed from the configuration`;
      throw new GatewayError('upstream-unavailable', { upstream: to.upstream, message, executed: 'no' });
    }
    exchange.upstream = to.upstream;
    const { holder, span } = exchange;
    const queued = exchange.acquireSlot(upstream.limiter);
    if (queued !== undefined) await traceWait(span, 'queue', upstream.id, queued);
    const { links } = this.#parts;
    try {
      for (let attempt = 1; ; attempt++) {
        const ready = links.findOpen(holder, upstream);
        const link = ready ?? (await this.#openLink(exchange, upstream));
        try {
          return await this.#callIn[link.era](exchange, upstream, link, to);
        } catch (thrown) {
          if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
          // A process stops reading a moment before the gateway notices its end.
          if (links.findOpen(holder, upstream) === link) await sleep(RESEND_MS);
        } finally {
          upstream.onCallEnd(link);
        }
      }
    } finally {
      exchange.releaseSlot();
    }
  }

  #openLink(exchange: OpenExchange, upstream: Upstream): Promise<Link> {
    const span = exchange.span?.child('internal', `connect ${upstream.id}`);
    const opening = exchange.unlessCancelled(this.#parts.links.openAt(exchange.holder, upstream, span));
    return span === undefined ? opening : endAfter(span, upstream.id, opening);
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
    const sent = paramsKnownTo(request.method, link.hello.revision, client.dialect.withoutEnvelope(params));
    const plan = taskCalls.planOf(exchange, upstream, link, sent, source);
    let answer: Answer;
    if (plan === 'plain') {
      answer = await this.#parts.sender.send(exchange, upstream, link, { params: sent.with('task', undefined) }).answer;
    } else {
      const called = await taskCalls.call(plan, exchange, upstream, link, sent);
      if (called.isTranslated) return { kind: 'answer', answer: called.answer };
      answer = called.answer;
    }
    if (answer.kind === 'error' && answer.error.code === RPC.urlElicitationRequired && client.dialect.asksInAnswers) {
      return urlsRequired(upstream.id, exchange, answer.error);
    }
    if (answer.kind === 'error') await this.#awaitLists(exchange);
    return this.#toOutcome(exchange, { upstream: upstream.id, era: link.era, source }, answer);
  }

  /**
   * Waits for new lists before the error of a read is translated, if the translation depends on them: a list that is not
   * read yet may have the resource.
   */
  async #awaitLists({ client, holder, request: { method, params } }: OpenExchange): Promise<void> {
    if (method !== 'resources/read' || !client.dialect.marksUnlistedResources) return;
    if (isListedResource(client.catalog, params?.string('uri') ?? '')) return;
    const refreshing = this.#parts.listRefresher.refreshFor(holder);
    if (refreshing !== undefined) await waitAtMost([refreshing], LISTS_WAIT_MS);
  }

  /** Translates an answer for the client, and adds a loss of the upstream's state that is not reported yet. */
  #toOutcome(exchange: OpenExchange, from: UpstreamResult, answer: Answer): CallOutcome {
    const translated = this.#parts.translator.toClient(exchange, from, answer);
    return { kind: 'answer', answer: withStateLoss(exchange.holder, from.upstream, translated) };
  }

  /** Makes a call at a modern upstream. While the upstream asks, asks a client with a session and sends the call again. */
  async #callModern(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    { params, source: listed }: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { method } = exchange.request;
    const { resourceCache } = this.#parts;
    const isRead = method === 'resources/read';
    let source = listed;
    const { holder } = exchange;
    const privateScope = `${holder.principal} ${holder.capabilityKey}`;
    const { isolation } = upstream.config;
    const audience = upstream.audienceOf(holder.principal);
    // The answer may depend on the principal, unless one connection serves all clients.
    const publicScope = isolation === 'shared' ? audience : holder.principal;
    const read = { upstream: upstream.id, privateScope, publicScope };
    const cached = isRead ? resourceCache.find({ ...read, params }, performance.now()) : undefined;
    if (cached !== undefined) {
      const from = { upstream: upstream.id, era: link.era, source };
      return { kind: 'answer', answer: this.#parts.translator.toClient(exchange, from, cached) };
    }
    const version = isRead ? resourceCache.versionOf(upstream.id) : 0;
    let sent = params;
    let hasRefreshed = false;
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const unparsed = await this.#parts.sender.send(exchange, upstream, link, {
        // A modern upstream itself decides whether to create a task.
        params: method === 'tools/call' ? sent.with('task', undefined) : sent,
        headers: headersOf(source, sent),
      }).answer;
      const answer = unparsed.kind === 'result' ? parsed(unparsed) : unparsed;
      if (answer.kind === 'error' && answer.error.code === RPC.headerMismatch && !hasRefreshed) {
        // The upstream refused the request before it ran: the tool's schema in the catalog is old.
        hasRefreshed = true;
        await upstream.relist(holder.era, upstream.isPersonal ? holder : NO_FEATURES, audience);
        this.#parts.listRefresher.bringUpToDate(holder);
        source = sourceAfterRelist(exchange) ?? source;
        continue;
      }
      const incomplete =
        answer.kind === 'result' ? readIncomplete(upstream.id, exchange, answer.parsedResult) : undefined;
      if (incomplete === undefined) {
        if (answer.kind === 'error') await this.#awaitLists(exchange);
        if (isRead) resourceCache.store({ ...read, params: sent }, version, answer, performance.now());
        return this.#toOutcome(exchange, { upstream: upstream.id, era: link.era, source }, answer);
      }
      if (incomplete.kind === 'task') {
        const created = this.#parts.taskCalls.onCreated(exchange, upstream, link, incomplete.state, source);
        return { kind: 'answer', answer: await created };
      }
      const { asked } = incomplete;
      if (exchange.client.dialect.asksInAnswers) return inputRequired(upstream.id, exchange, asked);
      const retry = await this.#collectInput(exchange, upstream, asked);
      if (!('requestState' in retry)) return { kind: 'answer', answer: retry };
      sent = withRetry(params, retry);
      exchange.releaseSlot();
      const queued = exchange.acquireSlot(upstream.limiter);
      if (queued !== undefined) await traceWait(exchange.span, 'queue', upstream.id, queued);
    }
    const message = `upstream "${upstream.id}" asked ${MAX_ROUNDS} times and is not done`;
    throw new GatewayError('upstream-protocol', { upstream: upstream.id, message });
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

/** Returns params without the members that an upstream of this revision does not know. */
function paramsKnownTo(method: string, revision: Revision, params: RawObject): RawObject {
  if (method !== 'completion/complete' || featuresOf(revision).completionContext) return params;
  return params.with('context', undefined);
}

const NO_HEADERS: readonly Header[] = [];

/** Returns the `Mcp-Param-…` headers of a call, by the schema of the tool. */
function headersOf(source: Source | undefined, params: RawObject): readonly Header[] {
  if (source === undefined || source.headerParams.length === 0) return NO_HEADERS;
  return paramHeaders(source.headerParams, params.object('arguments'));
}

/** Returns the called tool in the current catalog. */
function sourceAfterRelist({ client: { catalog }, tool }: OpenExchange): Source | undefined {
  const target = tool === undefined ? undefined : catalog.tools.get(tool);
  return target === undefined ? undefined : sourceOf(catalog, target);
}

/** Returns whether the upstream has not received the request, so that it may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const executed = thrown.detail.executed ?? thrown.row.executed;
  return executed === 'no' && (thrown.code === 'upstream-session-lost' || thrown.code === 'upstream-lost');
}

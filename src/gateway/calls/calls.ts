import { setTimeout as sleep } from 'node:timers/promises';
import type { Source } from '../../catalog/names/named-items.ts';
import { isListedResource, sourceOf } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { withoutEnvelope } from '../../protocol/envelope.ts';
import { type InputRequired, type Retry, withRetry } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import { type Answer, parsed } from '../../protocol/jsonrpc.ts';
import { type Header, paramHeaders } from '../../protocol/framing/mcp-headers.ts';
import { MODERN, type Revision } from '../../protocol/revisions.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import { type Link, NO_FEATURES } from '../../upstream/link/link.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { type ResultTranslator, NEEDS_URL, toolFailure, type UpstreamResult } from '../forward/result-translator.ts';
import { waitAtMost } from '../exchange/at-most.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { collectInput, MAX_ROUNDS } from '../questions/collect-input.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { withStateLoss } from '../connections/state-losses.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { ConnectionHolder, Upstreams } from '../exchange/connection-holder.ts';
import type { ResourceCache } from '../forward/resource-cache.ts';
import type { UpstreamRoute, Route } from '../exchange/route.ts';
import type { Sender } from '../forward/sender.ts';
import { type CallOutcome, inputRequired, pagesRequired, readAsking } from './asking-answers.ts';
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

/** The end of an upstream that refused a message is noticed within this time. */
const RESEND_MS = 150;

/** The longest that the error of a read waits for lists. */
const LISTS_WAIT_MS = 2_000;

/** Of the modern era: headers and body differ. */
const HEADER_MISMATCH = -32020;

/** Sends requests to their upstreams, at most once each, and translates the answers for the client. */
export class Calls {
  readonly #parts: CallsParts;
  readonly #sender: Sender;

  constructor(parts: CallsParts) {
    this.#parts = parts;
    this.#sender = parts.sender;
  }

  /**
   * Sends a request where its route leads, when the upstream has room for it. Only the call of a modern client can end with
   * questions or pages; a client with a session is asked while its call goes on.
   *
   * @throws {GatewayError} where the upstream has not answered.
   */
  async send(exchange: OpenExchange, to: Route): Promise<CallOutcome> {
    if (to.kind === 'nowhere') throw to.error;
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) throw new GatewayError('internal-error');
    exchange.upstream = to.upstream;
    await exchange.acquireSlot(upstream.limiter);
    return await this.#call(exchange, upstream, to);
  }

  /** Makes a call that has a slot at the upstream, and releases the slot at the end. */
  async #call(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    to: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { holder } = exchange;
    const { links } = this.#parts;
    try {
      for (let attempt = 1; ; attempt++) {
        const ready = links.findOpen(holder, upstream.id);
        const link = await (ready ?? exchange.unlessCancelled(links.open(holder, upstream.id)));
        try {
          return link.era === 'modern'
            ? await this.#callModern(exchange, upstream, link, to)
            : await this.#callLegacy(exchange, upstream, link, to);
        } catch (thrown) {
          if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
          // The end of a process is noticed a moment after it stops reading.
          if (links.findOpen(holder, upstream.id) === link) await sleep(RESEND_MS);
        } finally {
          upstream.onCallEnd(link);
        }
      }
    } finally {
      exchange.releaseSlot();
    }
  }

  /** Makes a call at a legacy upstream, as a task where the client or the tool wants one. */
  async #callLegacy(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { params, source }: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { links, taskCalls } = this.#parts;
    const { client, holder, request } = exchange;
    if (client.logLevel !== undefined) await links.ensureLogLevel(holder, link, client.logLevel);
    const isModern = client.caller.revision === MODERN;
    const sent = paramsKnownTo(request.method, link.hello.revision, isModern ? withoutEnvelope(params) : params);
    const plan = taskCalls.planOf(exchange, upstream, link, sent, source);
    let answer: Answer;
    if (plan === 'plain') {
      answer = await this.#sender.send(exchange, upstream, link, { params: sent.with('task', undefined) }).answer;
    } else {
      const called = await taskCalls.call(plan, exchange, upstream, link, sent);
      if (called.isDone) return { kind: 'answer', answer: called.answer };
      answer = called.answer;
    }
    if (answer.kind === 'error' && answer.error.code === NEEDS_URL && isModern) {
      return pagesRequired(upstream.id, exchange, answer.error);
    }
    if (answer.kind === 'error') await this.#awaitLists(exchange);
    return this.#toOutcome(exchange, { upstream: upstream.id, isModern: false, source }, answer);
  }

  /** Sends a request to a modern upstream, which decides on tasks itself. */
  #askModern(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { params, source }: Pick<UpstreamRoute, 'params' | 'source'>,
  ): Call<Exchange> {
    const asked = exchange.request.method === 'tools/call' ? params.with('task', undefined) : params;
    return this.#sender.send(exchange, upstream, link, { params: asked, headers: headersOf(source, params) });
  }

  /** A resource that is in no list may only not be listed yet. Waits until it is, before the error of a read is translated. */
  async #awaitLists({ client, holder, request: { method, params } }: OpenExchange): Promise<void> {
    if (method !== 'resources/read' || client.caller.revision !== MODERN) return;
    if (isListedResource(client.catalog, params?.string('uri') ?? '')) return;
    const refreshing = this.#parts.listRefresher.refreshFor(holder);
    if (refreshing !== undefined) await waitAtMost([refreshing], LISTS_WAIT_MS);
  }

  /** Translates an answer for the client, and adds the loss of the upstream's state where that is not reported yet. */
  #toOutcome(exchange: OpenExchange, given: UpstreamResult, answer: Answer): CallOutcome {
    const translated = this.#parts.translator.toClient(exchange, given, answer);
    return { kind: 'answer', answer: withStateLoss(exchange.holder, given.upstream, translated) };
  }

  /** Makes a call at a modern upstream. A client with a session is asked, and the call sent again, as long as the upstream asks. */
  async #callModern(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { params, source: listed }: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { method } = exchange.request;
    const { resourceCache } = this.#parts;
    const isRead = method === 'resources/read';
    let source = listed;
    const { holder } = exchange;
    const audience = `${holder.principal} ${holder.capabilityKey}`;
    // The answer may depend on the principal, except where one connection serves all.
    const publicAudience = upstream.config.isolation === 'shared' ? '' : holder.principal;
    const read = { upstream: upstream.id, audience, publicAudience };
    const cached = isRead ? resourceCache.find({ ...read, params }, performance.now()) : undefined;
    if (cached !== undefined) {
      const given = { upstream: upstream.id, isModern: true, source };
      return { kind: 'answer', answer: this.#parts.translator.toClient(exchange, given, cached) };
    }
    const version = isRead ? resourceCache.versionOf(upstream.id) : 0;
    let sent = params;
    let hasRefreshed = false;
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const given = await this.#askModern(exchange, upstream, link, { params: sent, source }).answer;
      const answer = given.kind === 'result' ? parsed(given) : given;
      if (answer.kind === 'error' && answer.error.code === HEADER_MISMATCH && !hasRefreshed) {
        // The upstream refused before it ran anything: the schemas in the catalog are old.
        hasRefreshed = true;
        await upstream.relist(exchange.holder.era, upstream.isPersonal ? exchange.holder : NO_FEATURES);
        this.#parts.listRefresher.bringUpToDate(exchange.holder);
        source = sourceAfterRelist(exchange) ?? source;
        continue;
      }
      const asked = answer.kind === 'result' ? readAsking(upstream.id, exchange, answer.parsedResult) : undefined;
      if (asked instanceof RawObject) {
        const created = await this.#parts.taskCalls.onCreated(exchange, upstream, link, asked, source);
        return { kind: 'answer', answer: created };
      }
      if (asked === undefined) {
        if (answer.kind === 'error') await this.#awaitLists(exchange);
        if (isRead) {
          resourceCache.store({ ...read, params: sent }, version, answer, performance.now());
        }
        return this.#toOutcome(exchange, { upstream: upstream.id, isModern: true, source }, answer);
      }
      if (exchange.client.caller.revision === MODERN) return inputRequired(upstream.id, exchange, asked);
      const retry = await this.#collectInput(exchange, upstream, asked);
      if (!('requestState' in retry)) return { kind: 'answer', answer: retry };
      sent = withRetry(params, retry);
      exchange.releaseSlot();
      await exchange.acquireSlot(upstream.limiter);
    }
    const message = `upstream "${upstream.id}" asked ${MAX_ROUNDS} times and is not done`;
    throw new GatewayError('upstream-protocol', { upstream: upstream.id, message });
  }

  /** Returns the client's answers, or the result of the call where the client refuses. */
  async #collectInput(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    asked: InputRequired,
  ): Promise<Retry | Answer> {
    try {
      return await collectInput(this.#parts.questionPolicy, exchange, upstream.id, asked);
    } catch (thrown) {
      const isRefusal = thrown instanceof GatewayError && thrown.code === 'client-unreachable';
      if (!isRefusal || exchange.request.method !== 'tools/call') throw thrown;
      return toolFailure(thrown.message);
    }
  }
}

/** Parameters without what an upstream of this revision does not know. */
function paramsKnownTo(method: string, revision: Revision, params: RawObject): RawObject {
  const isStrange = method === 'completion/complete' && revision < '2025-06-18';
  return isStrange ? params.with('context', undefined) : params;
}

const NO_HEADERS: readonly Header[] = [];

/** `Mcp-Param-…` of a call, by the schema of the tool. */
function headersOf(source: Source | undefined, params: RawObject): readonly Header[] {
  if (source === undefined || source.headerParams.length === 0) return NO_HEADERS;
  return paramHeaders(source.headerParams, params.object('arguments'));
}

function sourceAfterRelist({ client: { catalog }, tool }: OpenExchange): Source | undefined {
  const owner = tool === undefined ? undefined : catalog.tools.get(tool);
  return owner === undefined ? undefined : sourceOf(catalog, owner);
}

/** Whether the upstream has not received the request, so that it may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const executed = thrown.detail.executed ?? thrown.row.executed;
  return executed === 'no' && (thrown.code === 'upstream-session-lost' || thrown.code === 'upstream-lost');
}

import { sourceOf } from '../../catalog/catalog.ts';
import type { Source } from '../../catalog/names/named-items.ts';
import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { type Header, paramHeaders } from '../../protocol/framing/mcp-headers.ts';
import { type InputRequired, type Retry, withoutRetry, withRetry } from '../../protocol/input-required.ts';
import { type Answer, parsed } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { ASK_LIMIT_MS } from '../clients/session.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import { readOf, type ResourceCache } from '../forward/resource-cache.ts';
import { toolFailure } from '../forward/result-translator.ts';
import type { Sender } from '../forward/sender.ts';
import { collectInput } from '../questions/collect-input.ts';
import { OpenedPages } from '../questions/opened-pages.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { type CallAnswersParts, toOutcome } from './call-answers.ts';
import { assertAllowed, type CallJudgeParts } from './call-judge.ts';
import { type CallOutcome, type ParsedAnswer, readIncomplete } from './call-outcome.ts';
import type { TaskCalls } from './task-calls.ts';

export interface ModernCallsParts extends CallJudgeParts, CallAnswersParts {
  readonly questionPolicy: QuestionPolicy;
  readonly sender: Sender;
  readonly taskCalls: TaskCalls;
  readonly resourceCache: ResourceCache;
  /** Runs when a call ends because its upstream asks again and again. */
  readonly onLimit: (limit: LimitName) => void;
}

/** Makes calls at upstreams of 2026-07-28, which ask in their answers. */
export class ModernCalls {
  readonly #parts: ModernCallsParts;
  /** The pages that users have opened during calls, which may go on over another link. */
  readonly #opened = new WeakMap<OpenExchange, OpenedPages>();

  constructor(parts: ModernCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call at a modern upstream. While the upstream asks, asks a client with a session and sends the call again. */
  async call(exchange: OpenExchange, upstream: Upstream, link: Link, to: UpstreamRoute): Promise<CallOutcome> {
    const { source: listed } = to;
    // Before 2026-07-28 there are no retries: such members of a session's request are of no meaning, and nobody has judged them.
    const params = exchange.client.dialect.asksInAnswers ? to.params : withoutRetry(to.params);
    const { resourceCache, taskCalls } = this.#parts;
    // The cache of a replaced upstream belongs to the one that has taken its place.
    const isKept = exchange.request.method === 'resources/read' && !upstream.isRetired;
    const readVersion = isKept ? resourceCache.versionOf(upstream.id) : undefined;
    let source = listed;
    // After the loss of a link, the call goes on with the answers that the client has given.
    let sent = exchange.retry === undefined ? params : withRetry(params, exchange.retry);
    let opened = exchange.retry && this.#opened.get(exchange);
    for (let rounds = 0; rounds < LIMITS.inputRounds;) {
      let answer = await this.#sendModern(exchange, upstream, link, sent, source);
      if (isSchemaOld(answer)) {
        const relisted = await this.#relistSource(exchange, upstream);
        // A tool that is not listed any more, or withheld by the lock, is not called again.
        if (relisted !== undefined) {
          assertAllowed(this.#parts, exchange, { ...to, source: relisted }, true);
          source = relisted;
          answer = await this.#sendModern(exchange, upstream, link, sent, source);
        }
      }
      const incomplete =
        answer.kind === 'result' ? readIncomplete(upstream.id, exchange, answer.parsedResult) : undefined;
      if (incomplete === undefined) {
        if (readVersion !== undefined) {
          resourceCache.store(readOf(exchange.holder, upstream, sent), readVersion, answer, performance.now());
        }
        return toOutcome(this.#parts, exchange, link, source, answer);
      }
      if (incomplete.kind === 'task') {
        return await taskCalls.onCreated(exchange, upstream, link, incomplete.state, source);
      }
      const { asked } = incomplete;
      if (exchange.client.dialect.asksInAnswers) return { kind: 'input-required', inputRequired: asked };
      opened ??= new OpenedPages(Math.min(upstream.config.timeouts.maxMs, ASK_LIMIT_MS));
      this.#opened.set(exchange, opened);
      if (!opened.areAwaited(asked.inputRequests)) rounds++;
      else if (opened.areOverdue) return opened.toError(upstream.id);
      const retry = await this.#collectInput(exchange, upstream, asked, opened);
      if (!('requestState' in retry)) return retry;
      exchange.retry = retry;
      sent = withRetry(params, retry);
      exchange.releaseSlot();
      await exchange.acquireSlot(upstream);
      assertAllowed(this.#parts, exchange, to, true);
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
    // The list that cannot be read may be another one.
    await upstream
      .relist(holder.era, upstream.listsByCapabilities ? holder : NO_FEATURES, audience)
      .catch(() => undefined);
    this.#parts.listRefresher.bringUpToDate(holder);
    return currentSource(exchange);
  }

  /** Returns the client's answers, or the result of the call if the client refuses. */
  async #collectInput(
    exchange: OpenExchange,
    upstream: Upstream,
    asked: InputRequired,
    opened: OpenedPages,
  ): Promise<Retry | Answer> {
    try {
      return await collectInput(this.#parts.questionPolicy, exchange, upstream.id, asked, opened);
    } catch (thrown) {
      const isRefusal = thrown instanceof GatewayError && thrown.code === 'client-unreachable';
      if (!isRefusal || exchange.request.method !== 'tools/call') throw thrown;
      exchange.toldFailure = thrown.code;
      return toolFailure(thrown.message);
    }
  }
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

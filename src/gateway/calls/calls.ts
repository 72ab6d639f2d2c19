import type { SharedParts } from '../records/shared-parts.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { failureOfBegunCall, GatewayError } from '../../errors.ts';
import { JsonTextError } from '../../json/json.ts';
import type { Era } from '../../protocol/revisions.ts';
import { HttpStatusError } from '../../upstream/rpc/http-status-error.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { removedUpstream, type UpstreamRoute } from '../exchange/route.ts';
import { readOf, type ResourceCache } from '../forward/resource-cache.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import { assertAllowed, type CallJudgeParts } from './call-judge.ts';
import type { CallLimits } from './call-limits.ts';
import type { CallOutcome } from './call-outcome.ts';
import type { KeyedCalls } from './keyed-calls.ts';

interface EraCalls {
  /** Makes a call over an open link of an upstream, which has a slot there. */
  call(exchange: OpenExchange, upstream: Upstream, link: Link, to: UpstreamRoute): Promise<CallOutcome>;
}

export interface CallsParts extends CallJudgeParts, Pick<SharedParts, 'upstreams' | 'audit'> {
  readonly links: HolderLinks;
  readonly keyed: Pick<KeyedCalls, 'keyOf' | 'run'>;
  readonly limits: Pick<CallLimits, 'isOff' | 'admit'>;
  readonly resourceCache: ResourceCache;
  readonly translator: ResultTranslator;
  readonly callsIn: Readonly<Record<Era, EraCalls>>;
}

/** The pause before a call is sent again. The gateway notices the end of a process within this time. */
const RESEND_MS = 150;

/** Sends client requests to their upstreams, at most once each, and translates the answers. */
export class Calls {
  readonly #parts: CallsParts;

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /**
   * Sends a request to the upstream of its route, as soon as the upstream has a free slot. Sends it again if the upstream was
   * lost before it could receive it. A cached read needs no slot and no link. Only the call of a modern client can end with
   * questions or URLs: a client with a session is asked during its call.
   *
   * @throws {GatewayError} if the upstream has not answered; `audit-unavailable` if the request cannot be recorded. `rate-limited`,
   *   `repeated-call`, `overloaded` if the principal has used up a limit. Those of {@link KeyedCalls.run} if it has an idempotency key.
   */
  send(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    exchange.upstream = to.upstream;
    exchange.view = exchange.client.catalog.view;
    const { keyed } = this.#parts;
    const key = keyed.keyOf(exchange);
    if (key !== undefined) {
      const judge = () => assertAllowed(this.#parts, exchange, to, false);
      return keyed.run(exchange, to, key, (sent) => this.#sendWithinLimits(exchange, sent), judge);
    }
    return this.#sendWithinLimits(exchange, to);
  }

  #sendWithinLimits(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    return this.#parts.limits.isOff ? this.#send(exchange, to) : this.#sendCounted(exchange, to);
  }

  async #sendCounted(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    using counted = await this.#parts.limits.admit(exchange, to);
    try {
      return await this.#send(exchange, to);
    } catch (thrown) {
      if (!exchange.wasSent || wasNotReceived(thrown)) counted.refund();
      throw thrown;
    }
  }

  async #send(exchange: OpenExchange, to: UpstreamRoute): Promise<CallOutcome> {
    const { upstreams, links, audit, callsIn } = this.#parts;
    const { client, holder, request } = exchange;
    await audit?.begin(request, client.caller, to.upstream, to.upstreamTool);
    // Not before the wait, in which a reload may replace it.
    const upstream = upstreams.get(to.upstream);
    if (upstream === undefined) throw removedUpstream(to.upstream);
    assertAllowed(this.#parts, exchange, to, false);
    const cached = this.#cachedRead(exchange, upstream, to);
    if (cached !== undefined) return cached;
    const queued = exchange.acquireSlot(upstream);
    if (queued !== undefined) await queued;
    try {
      if (queued !== undefined) {
        assertAllowed(this.#parts, exchange, to, true);
        // Another request may have read the resource while this one was in the queue.
        const read = this.#cachedRead(exchange, upstream, to);
        if (read !== undefined) return read;
      }
      for (let attempt = 1; ; attempt++) {
        const open = links.findOpen(holder, upstream);
        const link = open ?? (await links.openFor(exchange, holder, upstream));
        upstream.beginCall(link);
        try {
          if (client.logLevel !== undefined) await links.levels.ensure(holder, link, client.logLevel);
          exchange.throwIfCancelled();
          // The last wait before the call is sent is over.
          assertAllowed(this.#parts, exchange, to, attempt > 1 || open === undefined);
          return await callsIn[link.era].call(exchange, upstream, link, to);
        } catch (thrown) {
          if (attempt > 1 || !wasNeverSeen(thrown)) throw failureOf(exchange, to.upstream, thrown);
          // A process stops reading a moment before the gateway notices its end.
          if (links.findOpen(holder, upstream) === link) await sleep(RESEND_MS);
        } finally {
          upstream.endCall(link);
        }
      }
    } catch (thrown) {
      throw exchange.retry !== undefined && thrown instanceof GatewayError ? failureOfBegunCall(thrown) : thrown;
    } finally {
      exchange.releaseSlot();
    }
  }

  /** Returns the outcome of a read that a cached result answers; undefined if there is none. */
  #cachedRead(exchange: OpenExchange, upstream: Upstream, { params, source }: UpstreamRoute): CallOutcome | undefined {
    if (exchange.request.method !== 'resources/read') return undefined;
    const { holder } = exchange;
    const era = upstream.servingEra(holder.era);
    if (era === undefined || !UPSTREAM_DIALECTS[era].allowsCaching) return undefined;
    const { resourceCache, translator } = this.#parts;
    const cached = resourceCache.find(readOf(holder, upstream, params), performance.now());
    if (cached === undefined) return undefined;
    const from = { upstream: upstream.id, era, source, ageMs: cached.ageMs };
    return translator.toClient(exchange, from, cached.answer);
  }
}

/** Returns what a call has failed with. Texts of clients were checked as a whole, so malformed JSON is the upstream's. */
function failureOf({ wasSent }: OpenExchange, upstream: string, thrown: unknown): unknown {
  if (!(thrown instanceof JsonTextError)) return thrown;
  const message = `upstream "${upstream}" sent malformed JSON`;
  return new GatewayError('upstream-protocol', { upstream, message, ...(wasSent ? {} : { executed: 'no' }) }, thrown);
}

/** Returns whether a call has failed before its upstream got it. An upstream that refuses the call, or its session, has got it. */
function wasNotReceived(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError) || thrown.executed !== 'no') return false;
  return thrown.code !== 'upstream-session-lost' && !(thrown.cause instanceof HttpStatusError);
}

/** Returns whether the upstream has not received the request, so that it may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const { code, executed } = thrown;
  return executed === 'no' && (code === 'upstream-session-lost' || code === 'upstream-lost');
}

import type { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { ConnectionHolder, Upstream } from '../exchange/connection-holder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import type { ResourceCache, ResourceRead } from '../forward/resource-cache.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { CallOutcome } from './call-outcome.ts';

export interface CachedReadsParts {
  readonly resourceCache: ResourceCache;
  readonly translator: ResultTranslator;
}

/** Answers reads of resources from the cache, and stores the results of others in it. */
export class CachedReads {
  readonly #parts: CachedReadsParts;

  constructor(parts: CachedReadsParts) {
    this.#parts = parts;
  }

  /** Returns the outcome of a read that a cached result answers; undefined if there is none. */
  find(exchange: OpenExchange, upstream: Upstream, { params, source }: UpstreamRoute): CallOutcome | undefined {
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

  /** Returns a number that changes with each change of the upstream's resources; 0 for other requests than reads. */
  versionOf({ request }: OpenExchange, upstream: Upstream): number {
    return request.method === 'resources/read' ? this.#parts.resourceCache.versionOf(upstream.id) : 0;
  }

  /** Stores the answer of a read, if it may be cached. @param version that of the resources when the read began. */
  store({ request, holder }: OpenExchange, upstream: Upstream, sent: RawObject, version: number, answer: Answer): void {
    if (request.method !== 'resources/read') return;
    this.#parts.resourceCache.store(readOf(holder, upstream, sent), version, answer, performance.now());
  }
}

/** Returns a read with the clients that its result may answer. */
function readOf({ principal, capabilityKey }: ConnectionHolder, upstream: Upstream, params: RawObject): ResourceRead {
  // The answer may depend on the principal, unless one connection serves all clients.
  const publicScope = upstream.config.isolation === 'shared' ? upstream.audienceOf(principal) : principal;
  return { upstream: upstream.id, params, privateScope: `${principal} ${capabilityKey}`, publicScope };
}

import { readCaching } from '../../catalog/caching.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';

interface CachedRead {
  readonly answer: Answer;
  /** Monotonic. */
  readonly untilMs: number;
  readonly upstream: string;
}

const MAX_KEPT = 1_000;
const MAX_KEPT_CHARS = 1_048_576;
/** However long an upstream says, it is asked again after this. */
const LONGEST_MS = 3_600_000;

/**
 * Keeps resources as modern upstreams allow it. A read of one principal is served to another only where the upstream says `public`
 * and is configured as `shared`: other connections may carry credentials, and then an upstream's word is not enough.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export class ResourceCache {
  readonly #kept = new Map<string, CachedRead>();
  /** How often something of an upstream's has changed. */
  readonly #changes = new Map<string, number>();
  /** Upstreams of which something is kept. */
  readonly #upstreams = new Set<string>();

  /** Which state of an upstream's resources is read now. */
  versionOf(upstream: string): number {
    return this.#changes.get(upstream) ?? 0;
  }

  /** What is kept of this resource, as the upstream gave it. */
  find(exchange: OpenExchange, upstream: string, params: RawObject, nowMs: number): Answer | undefined {
    const uri = params.string('uri');
    if (uri === undefined || isRetry(params)) return undefined;
    for (const owner of ['', exchange.holder.principal, ownerOf(exchange)]) {
      const key = keyOf(upstream, uri, owner);
      const kept = this.#kept.get(key);
      if (kept !== undefined && nowMs < kept.untilMs) return kept.answer;
    }
    return undefined;
  }

  /**
   * Keeps an answer, where the upstream allows it. The answer to a request with `inputResponses` is never kept.
   *
   * @param isShared whether one connection to the upstream serves all principals.
   * @param state of the upstream's resources when it was asked: {@link versionOf}.
   */
  store(
    exchange: OpenExchange,
    upstream: string,
    isShared: boolean,
    state: number,
    params: RawObject,
    answer: Answer,
    nowMs: number,
  ): void {
    if (answer.kind !== 'result' || answer.result.length > MAX_KEPT_CHARS || isRetry(params)) return;
    // It may be what was there before a change that came meanwhile.
    if (state !== this.versionOf(upstream)) return;
    const uri = params.string('uri');
    const caching = readCaching(RawObject.parse(answer.result));
    if (uri === undefined || caching === undefined || caching.ttlMs === 0) return;
    const key = keyOf(upstream, uri, ownerFor(exchange, caching.isPublic, isShared));
    this.#upstreams.add(upstream);
    this.#kept.delete(key);
    this.#kept.set(key, { answer, untilMs: nowMs + Math.min(caching.ttlMs, LONGEST_MS), upstream });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }

  /** Something of this upstream's changed. Which resources that touches, a server may name by a whole they belong to. */
  invalidate(upstream: string): void {
    this.#changes.set(upstream, this.versionOf(upstream) + 1);
    if (!this.#upstreams.delete(upstream)) return;
    for (const [key, kept] of this.#kept) if (kept.upstream === upstream) this.#kept.delete(key);
  }
}

function isRetry(params: RawObject): boolean {
  return params.raw('inputResponses') !== undefined || params.raw('requestState') !== undefined;
}

/** The requests that may be served the same answer: everybody's, those of one principal, or those with equal capabilities too. */
function ownerFor(exchange: OpenExchange, isPublic: boolean, isShared: boolean): string {
  if (!isPublic) return ownerOf(exchange);
  return isShared ? '' : exchange.holder.principal;
}

function ownerOf({ holder }: OpenExchange): string {
  return `${holder.principal} ${holder.capabilityKey}`;
}

function keyOf(upstream: string, uri: string, owner: string): string {
  return JSON.stringify([upstream, uri, owner]);
}

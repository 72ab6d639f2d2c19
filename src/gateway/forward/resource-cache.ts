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
 * Resources as modern upstreams let them be kept: for everybody where they say so, else for the one who asked.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export class ResourceCache {
  readonly #kept = new Map<string, CachedRead>();
  /** How often something of an upstream's has changed. */
  readonly #changes = new Map<string, number>();

  /** Which state of an upstream's resources is read now. */
  versionOf(upstream: string): number {
    return this.#changes.get(upstream) ?? 0;
  }

  /** What is kept of this resource, as the upstream gave it. */
  find(exchange: OpenExchange, upstream: string, params: RawObject, nowMs: number): Answer | undefined {
    const uri = params.string('uri');
    if (uri === undefined || isRetry(params)) return undefined;
    for (const key of [keyOf(upstream, uri, ''), keyOf(upstream, uri, ownerOf(exchange))]) {
      const kept = this.#kept.get(key);
      if (kept !== undefined && nowMs < kept.untilMs) return kept.answer;
    }
    return undefined;
  }

  /**
   * Keeps it, if the upstream allows. Whoever brought answers to questions gets what is nobody else's, not even their own later.
   *
   * @param state of the upstream's resources when it was asked: {@link versionOf}.
   */
  store(
    exchange: OpenExchange,
    upstream: string,
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
    const key = keyOf(upstream, uri, caching.isPublic ? '' : ownerOf(exchange));
    this.#kept.delete(key);
    this.#kept.set(key, { answer, untilMs: nowMs + Math.min(caching.ttlMs, LONGEST_MS), upstream });
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }

  /** Something of this upstream's changed. Which resources that touches, a server may name by a whole they belong to. */
  invalidate(upstream: string): void {
    this.#changes.set(upstream, this.versionOf(upstream) + 1);
    for (const [key, kept] of this.#kept) if (kept.upstream === upstream) this.#kept.delete(key);
  }
}

function isRetry(params: RawObject): boolean {
  return params.raw('inputResponses') !== undefined || params.raw('requestState') !== undefined;
}

/** Whoever is told apart from others: by credentials, and by what its client can do. */
function ownerOf({ holder }: OpenExchange): string {
  return `${holder.principal} ${holder.capabilityKey}`;
}

function keyOf(upstream: string, uri: string, owner: string): string {
  return JSON.stringify([upstream, uri, owner]);
}

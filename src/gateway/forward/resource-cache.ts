import { readCaching } from '../../catalog/caching.ts';
import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { Answer, Result } from '../../protocol/jsonrpc.ts';

interface CachedRead {
  readonly answer: Result & { readonly result: KeptText };
  /** Monotonic. */
  readonly untilMs: number;
  readonly bytes: number;
}

/** The cached reads of one upstream, the oldest first. */
interface Shelf {
  readonly reads: KeptMap<CachedRead>;
  bytes: number;
}

/** One `resources/read` request: the upstream, its parameters, and the requests that may share its answer. */
export interface Read {
  readonly upstream: string;
  readonly params: RawObject;
  /** Equal for requests that a private result may answer: same principal, same client capabilities. */
  readonly privateScope: string;
  /** Equal for requests that a public result may answer. */
  readonly publicScope: string;
}

/** The longest time that a result is kept, even if the upstream allows more. */
const MAX_TTL_MS = 3_600_000;

/**
 * Results of `resources/read` that modern upstreams allow to be cached: `public` results for all clients, others for
 * those of the same principal and capabilities.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export class ResourceCache {
  readonly #shelves = new Map<string, Shelf>();
  /** The number of changes that each upstream has announced. */
  readonly #changes = new Map<string, number>();
  readonly #onLimit: (limit: LimitName) => void;
  #bytes = 0;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Bytes of all cached results. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns a number that changes with each change of the upstream's resources. */
  versionOf(upstream: string): number {
    return this.#changes.get(upstream) ?? 0;
  }

  /** Returns the cached result as the upstream sent it; undefined if there is no fresh one. */
  find({ upstream, params, privateScope, publicScope }: Read, nowMs: number): Result | undefined {
    const uri = params.string('uri');
    const shelf = this.#shelves.get(upstream);
    if (shelf === undefined || uri === undefined || isRetry(params)) return undefined;
    for (const key of [keyOf('public', publicScope, uri), keyOf('private', privateScope, uri)]) {
      const read = shelf.reads.get(key);
      if (read !== undefined && nowMs < read.untilMs) return read.answer;
    }
    return undefined;
  }

  /**
   * Keeps a result, if the upstream allows it and it fits. The answer to a retry with input responses is never kept.
   *
   * @param version from {@link versionOf}, before the request was sent.
   */
  store({ upstream, params, privateScope, publicScope }: Read, version: number, answer: Answer, nowMs: number): void {
    if (answer.kind !== 'result' || isRetry(params)) return;
    // The result may be older than a change that the upstream has announced since.
    if (version !== this.versionOf(upstream)) return;
    const uri = params.string('uri');
    const caching = readCaching(RawObject.parse(answer.result));
    if (uri === undefined || caching === undefined || caching.ttlMs === 0) return;
    const key = detach(caching.isPublic ? keyOf('public', publicScope, uri) : keyOf('private', privateScope, uri));
    const bytes = Buffer.byteLength(answer.result) + Buffer.byteLength(key);
    if (bytes > LIMITS.readCacheEntryBytes) {
      this.#onLimit('readCacheEntryBytes');
      return;
    }
    const shelf = this.#shelves.get(upstream) ?? { reads: new KeptMap<CachedRead>(), bytes: 0 };
    this.#shelves.set(upstream, shelf);
    this.#remove(shelf, key);
    // The text is part of a message, all of which would stay in memory.
    const kept = { kind: 'result', result: detach(answer.result) } as const;
    shelf.reads.set(key, { answer: kept, untilMs: nowMs + Math.min(caching.ttlMs, MAX_TTL_MS), bytes });
    shelf.bytes += bytes;
    this.#bytes += bytes;
    this.#makeRoom(shelf);
  }

  #makeRoom(shelf: Shelf): void {
    while (shelf.bytes > LIMITS.readCacheUpstreamBytes) this.#removeOldest(shelf, 'readCacheUpstreamBytes');
    while (this.#bytes > LIMITS.readCacheBytes) {
      const [first = shelf, ...others] = this.#shelves.values();
      const largest = others.reduce((most, other) => (other.bytes > most.bytes ? other : most), first);
      this.#removeOldest(largest, 'readCacheBytes');
    }
  }

  #removeOldest(shelf: Shelf, limit: LimitName): void {
    const [oldest] = shelf.reads.keys();
    if (oldest !== undefined) this.#remove(shelf, oldest);
    this.#onLimit(limit);
  }

  #remove(shelf: Shelf, key: string): void {
    const bytes = shelf.reads.get(key)?.bytes ?? 0;
    shelf.reads.delete(key);
    shelf.bytes -= bytes;
    this.#bytes -= bytes;
  }

  /** Removes all results of an upstream: the changed resource may contain the cached ones. */
  invalidate(upstream: string): void {
    this.#changes.set(upstream, this.versionOf(upstream) + 1);
    this.#bytes -= this.#shelves.get(upstream)?.bytes ?? 0;
    this.#shelves.delete(upstream);
  }
}

function isRetry(params: RawObject): boolean {
  return params.raw('inputResponses') !== undefined || params.raw('requestState') !== undefined;
}

function keyOf(kind: 'public' | 'private', scope: string, uri: string): string {
  return JSON.stringify([kind, scope, uri]);
}

import { readCaching } from '../../catalog/caching.ts';
import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { Answer, Result } from '../../protocol/jsonrpc.ts';
import type { ConnectionHolder, Upstream } from '../exchange/connection-holder.ts';

interface CachedRead {
  readonly answer: Result & { readonly result: KeptText };
  /** Monotonic. */
  readonly receivedMs: number;
  readonly untilMs: number;
  readonly bytes: number;
}

/** The cached reads of one upstream, the oldest first. */
interface UpstreamReads {
  readonly reads: KeptMap<CachedRead>;
  bytes: number;
}

/** One `resources/read` request: the upstream, its parameters, and the requests that may share its answer. */
export interface ResourceRead {
  readonly upstream: string;
  readonly params: RawObject;
  /** Equal for requests that a private result may answer: same principal, same client capabilities. */
  readonly privateScope: string;
  /** Equal for requests that a public result may answer. */
  readonly publicScope: string;
}

/** Returns a read with the clients that its result may answer. */
export function readOf(
  { principal, capabilityKey }: ConnectionHolder,
  upstream: Upstream,
  params: RawObject,
): ResourceRead {
  // The answer may depend on the principal, unless one connection serves all clients.
  const publicScope = upstream.config.isolation === 'shared' ? upstream.audienceOf(principal) : principal;
  return { upstream: upstream.id, params, privateScope: `${principal} ${capabilityKey}`, publicScope };
}

/** Fields of `_meta`, besides those of the protocol, that do not change a result. */
const OWN_META: ReadonlySet<string> = new Set(['progressToken', 'traceparent', 'tracestate', 'baggage']);
const PROTOCOL_META = 'io.modelcontextprotocol/';

/** The longest time that a result is kept, even if the upstream allows more. */
const MAX_TTL_MS = 3_600_000;

/**
 * Results of `resources/read` that modern upstreams allow to be cached: `public` results for all clients, others for
 * those of the same principal and capabilities.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export class ResourceCache {
  readonly #byUpstream = new Map<string, UpstreamReads>();
  /** The number of changes that each upstream has announced. */
  readonly #changes = new Map<string, number>();
  readonly #isAlone: boolean;
  readonly #onLimit: (limit: LimitName) => void;
  #bytes = 0;

  /** @param isAlone false if another process may be the one that hears of a change. Nothing is kept then. */
  constructor(isAlone: boolean, onLimit: (limit: LimitName) => void) {
    this.#isAlone = isAlone;
    this.#onLimit = onLimit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  clear(): void {
    this.#byUpstream.clear();
    this.#bytes = 0;
  }

  /** Returns a number that changes with each change of the upstream's resources. */
  versionOf(upstream: string): number {
    return this.#changes.get(upstream) ?? 0;
  }

  /** Returns the cached result as the upstream sent it, with its age; undefined if there is no fresh one. */
  find(
    { upstream, params, privateScope, publicScope }: ResourceRead,
    nowMs: number,
  ): { readonly answer: Result; readonly ageMs: number } | undefined {
    const own = this.#byUpstream.get(upstream);
    const uri = own && onlyUri(params);
    if (own === undefined || uri === undefined) return undefined;
    for (const key of [keyOf('public', publicScope, uri), keyOf('private', privateScope, uri)]) {
      const read = own.reads.get(key);
      if (read !== undefined && nowMs < read.untilMs) return { answer: read.answer, ageMs: nowMs - read.receivedMs };
    }
    return undefined;
  }

  /**
   * Keeps a result, if the upstream allows it and it fits. The answer to a retry with input responses, or to other parameters, is never kept.
   *
   * @param version from {@link versionOf}, before the request was sent.
   */
  store(
    { upstream, params, privateScope, publicScope }: ResourceRead,
    version: number,
    answer: Answer,
    nowMs: number,
  ): void {
    if (answer.kind !== 'result' || !this.#isAlone) return;
    // The result may be older than a change that the upstream has announced since.
    if (version !== this.versionOf(upstream)) return;
    const uri = onlyUri(params);
    if (uri === undefined) return;
    const caching = readCaching(RawObject.parse(answer.result));
    if (caching === undefined || caching.ttlMs === 0) return;
    const key = detach(caching.isPublic ? keyOf('public', publicScope, uri) : keyOf('private', privateScope, uri));
    const bytes = Buffer.byteLength(answer.result) + Buffer.byteLength(key);
    if (bytes > LIMITS.readCacheEntryBytes) {
      this.#onLimit('readCacheEntryBytes');
      return;
    }
    const own = this.#byUpstream.get(upstream) ?? { reads: new KeptMap<CachedRead>(), bytes: 0 };
    this.#byUpstream.set(upstream, own);
    this.#remove(own, key);
    // The text is part of a message, all of which would stay in memory.
    const kept = { kind: 'result', result: detach(answer.result) } as const;
    const untilMs = nowMs + Math.min(caching.ttlMs, MAX_TTL_MS);
    own.reads.set(key, { answer: kept, receivedMs: nowMs, untilMs, bytes });
    own.bytes += bytes;
    this.#bytes += bytes;
    this.#makeRoom(own);
  }

  #makeRoom(own: UpstreamReads): void {
    while (own.bytes > LIMITS.readCacheUpstreamBytes) this.#removeOldest(own, 'readCacheUpstreamBytes');
    while (this.#bytes > LIMITS.readCacheBytes) {
      const [first = own, ...others] = this.#byUpstream.values();
      const largest = others.reduce((most, other) => (other.bytes > most.bytes ? other : most), first);
      this.#removeOldest(largest, 'readCacheBytes');
    }
  }

  #removeOldest(own: UpstreamReads, limit: LimitName): void {
    const [oldest] = own.reads.keys();
    if (oldest !== undefined) this.#remove(own, oldest);
    this.#onLimit(limit);
  }

  #remove(own: UpstreamReads, key: string): void {
    const bytes = own.reads.get(key)?.bytes ?? 0;
    own.reads.delete(key);
    own.bytes -= bytes;
    this.#bytes -= bytes;
  }

  /** Removes all results of an upstream: the changed resource may contain the cached ones. */
  invalidate(upstream: string): void {
    this.#changes.set(upstream, this.versionOf(upstream) + 1);
    this.#bytes -= this.#byUpstream.get(upstream)?.bytes ?? 0;
    this.#byUpstream.delete(upstream);
  }
}

/** Returns the URI of a read that nothing else says more about. Undefined if a result of it is for no other request, as with a retry. */
function onlyUri(params: RawObject): string | undefined {
  if (params.keys().some((name) => name !== 'uri' && name !== '_meta')) return undefined;
  const meta = params.object('_meta')?.keys() ?? [];
  const isOwn = meta.every((name) => name.startsWith(PROTOCOL_META) || OWN_META.has(name));
  return isOwn ? params.string('uri') : undefined;
}

function keyOf(kind: 'public' | 'private', scope: string, uri: string): string {
  return JSON.stringify([kind, scope, uri]);
}

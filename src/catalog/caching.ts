import { isRecord } from '../json/record.ts';
import type { RawObject } from '../json/json.ts';

/**
 * The time for which a result may be cached, and whether every client gets the same one.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export interface Caching {
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

/** The default where a server sends no caching fields: not cached, and for one client only. */
export const UNCACHED: Caching = { ttlMs: 0, isPublic: false };

/** Returns the caching fields of a result; undefined for results of the legacy era, which have none. */
export function readCaching(result: RawObject): Caching | undefined {
  const ttlMs = Number(result.raw('ttlMs') ?? Number.NaN);
  const scope = result.string('cacheScope');
  if (Number.isNaN(ttlMs) && scope === undefined) return undefined;
  // `1e400` is infinite, which JSON cannot express.
  return { ttlMs: ttlMs > 0 ? Math.min(Math.floor(ttlMs), Number.MAX_SAFE_INTEGER) : 0, isPublic: scope === 'public' };
}

/** Returns the caching of a result made of two: the shorter time, and public only if both are. */
export function combineCaching(one: Caching, other: Caching): Caching {
  return { ttlMs: Math.min(one.ttlMs, other.ttlMs), isPublic: one.isPublic && other.isPublic };
}

/** Returns whether a value parsed from JSON has the shape of {@link Caching}. */
export function isCaching(value: unknown): value is Caching {
  return isRecord(value) && typeof value['ttlMs'] === 'number' && typeof value['isPublic'] === 'boolean';
}

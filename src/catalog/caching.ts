import type { RawObject } from '../json/json.ts';

/**
 * How long a result holds, in milliseconds, and whether it is the same for everybody.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching
 */
export interface Caching {
  readonly ttlMs: number;
  readonly isPublic: boolean;
}

/** What is said by saying nothing: good for this once, and for nobody else. */
export const UNCACHED: Caching = { ttlMs: 0, isPublic: false };

/** Undefined where the result says nothing of it, as those of the legacy era. */
export function readCaching(result: RawObject): Caching | undefined {
  const ttlMs = Number(result.raw('ttlMs') ?? Number.NaN);
  const scope = result.string('cacheScope');
  if (Number.isNaN(ttlMs) && scope === undefined) return undefined;
  return { ttlMs: ttlMs > 0 ? Math.floor(ttlMs) : 0, isPublic: scope === 'public' };
}

/** What holds for two results together. */
export function narrower(one: Caching, other: Caching): Caching {
  return { ttlMs: Math.min(one.ttlMs, other.ttlMs), isPublic: one.isPublic && other.isPublic };
}

export function isCaching(value: unknown): value is Caching {
  return (
    typeof value === 'object' &&
    value !== null &&
    'ttlMs' in value &&
    typeof value.ttlMs === 'number' &&
    'isPublic' in value &&
    typeof value.isPublic === 'boolean'
  );
}

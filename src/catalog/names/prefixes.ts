import { oncePer } from '../weak-cache.ts';
import type { View } from '../view.ts';
import { publishedPrefix } from './name.ts';

type Prefixes = readonly (readonly [prefix: string, upstream: string])[];

/** Returns the published prefixes with the ids of their upstreams: the same array for the same view. */
export const prefixesOf = oncePer((view: View): Prefixes =>
  view.upstreams.map((upstream) => [publishedPrefix(upstream), upstream.id]),
);

/**
 * Returns the id of another upstream whose prefix the name begins with, unless `prefix` begins with it too. Such names are reserved for
 * that upstream even while it is down or does not list them. No other upstream can take them.
 *
 * @param prefix the whole prefix of the name's own upstream; a cut name has only a part of it.
 */
export function reservedFor(prefixes: Prefixes, prefix: string, name: string): string | undefined {
  const { firstByPrefix, lengths } = indexOf(prefixes);
  let reserved: { readonly position: number; readonly upstream: string } | undefined;
  for (const length of lengths) {
    if (length > name.length) break;
    const other = name.slice(0, length);
    const entry = firstByPrefix.get(other);
    if (entry === undefined || prefix.startsWith(other)) continue;
    if (reserved === undefined || entry.position < reserved.position) reserved = entry;
  }
  return reserved?.upstream;
}

interface PrefixIndex {
  readonly firstByPrefix: ReadonlyMap<string, { readonly position: number; readonly upstream: string }>;
  /** The lengths of the prefixes, ascending. */
  readonly lengths: readonly number[];
}

/** Returns the index of the prefixes. To compare each name with each one would take most of the time. */
const indexOf = oncePer((prefixes: Prefixes): PrefixIndex => {
  const firstByPrefix = new Map<string, { readonly position: number; readonly upstream: string }>();
  for (const [position, [prefix, upstream]] of prefixes.entries()) {
    if (!firstByPrefix.has(prefix)) firstByPrefix.set(prefix, { position, upstream });
  }
  const lengths = [...new Set([...firstByPrefix.keys()].map(({ length }) => length))].toSorted((a, b) => a - b);
  return { firstByPrefix, lengths };
});

import type { View } from '../view.ts';
import { publishedPrefix } from './name.ts';

type Prefixes = readonly (readonly [prefix: string, upstream: string])[];

const known = new WeakMap<View, Prefixes>();

/** Returns the published prefixes with the ids of their upstreams: the same array for the same view. */
export function prefixesOf(view: View): Prefixes {
  let prefixes = known.get(view);
  if (prefixes === undefined) {
    prefixes = view.upstreams.map((upstream) => [publishedPrefix(upstream), upstream.id]);
    known.set(view, prefixes);
  }
  return prefixes;
}

/**
 * Returns the id of another upstream whose prefix the name begins with, unless `prefix` begins with it too. Such names
 * are reserved for that upstream even while it is down or does not list them, so that no other upstream can take them.
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
  /** The first upstream of each prefix. */
  readonly firstByPrefix: ReadonlyMap<string, { readonly position: number; readonly upstream: string }>;
  /** The lengths of the prefixes, ascending. */
  readonly lengths: readonly number[];
}

const indexes = new WeakMap<Prefixes, PrefixIndex>();

/**
 * Returns the index of the prefixes. Without it, comparing each name with each prefix dominates the time for many
 * upstreams.
 */
function indexOf(prefixes: Prefixes): PrefixIndex {
  let index = indexes.get(prefixes);
  if (index === undefined) {
    const firstByPrefix = new Map<string, { readonly position: number; readonly upstream: string }>();
    for (const [position, [prefix, upstream]] of prefixes.entries()) {
      if (!firstByPrefix.has(prefix)) firstByPrefix.set(prefix, { position, upstream });
    }
    const lengths = [...new Set([...firstByPrefix.keys()].map(({ length }) => length))].toSorted((a, b) => a - b);
    index = { firstByPrefix, lengths };
    indexes.set(prefixes, index);
  }
  return index;
}

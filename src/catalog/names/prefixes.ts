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
  const { owners, lengths } = indexOf(prefixes);
  let first: { readonly position: number; readonly upstream: string } | undefined;
  for (const length of lengths) {
    if (length > name.length) break;
    const other = name.slice(0, length);
    const owner = owners.get(other);
    if (owner === undefined || prefix.startsWith(other)) continue;
    if (first === undefined || owner.position < first.position) first = owner;
  }
  return first?.upstream;
}

interface PrefixIndex {
  /** The first upstream of each prefix. */
  readonly owners: ReadonlyMap<string, { readonly position: number; readonly upstream: string }>;
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
    const owners = new Map<string, { readonly position: number; readonly upstream: string }>();
    for (const [position, [prefix, upstream]] of prefixes.entries()) {
      if (!owners.has(prefix)) owners.set(prefix, { position, upstream });
    }
    const lengths = [...new Set([...owners.keys()].map(({ length }) => length))].toSorted((a, b) => a - b);
    index = { owners, lengths };
    indexes.set(prefixes, index);
  }
  return index;
}

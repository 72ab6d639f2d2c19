import type { View } from '../view.ts';
import { publishedPrefix } from './name.ts';

type Prefixes = readonly (readonly [prefix: string, upstream: string])[];

const known = new WeakMap<View, Prefixes>();

/** Returns the published prefixes with the upstreams they belong to: the same array for the same view. */
export function prefixesOf(view: View): Prefixes {
  let prefixes = known.get(view);
  if (prefixes === undefined) {
    prefixes = view.upstreams.map((upstream) => [publishedPrefix(upstream), upstream.id]);
    known.set(view, prefixes);
  }
  return prefixes;
}

/**
 * Returns another upstream whose prefix the name begins with, unless `prefix` begins with it too. Such names belong to
 * that upstream whether or not it lists them or is up; otherwise another one could take them while it is away.
 *
 * @param prefix the whole prefix of the name's own upstream, of which a cut name has only a part.
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
  /** Of the prefixes, ascending. */
  readonly lengths: readonly number[];
}

const indexes = new WeakMap<Prefixes, PrefixIndex>();

/** With many upstreams, comparing each name with each prefix would take longer than everything else. */
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

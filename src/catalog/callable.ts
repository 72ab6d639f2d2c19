import { hasFilter } from './names/glob.ts';
import { quarantine, repairOf, type Quarantined, type Repaired } from './item.ts';
import { shown } from './names/name.ts';
import { nameItems, type NamedItems, type Source, type Target, textsOf } from './names/named-items.ts';
import type { Offer } from './offer.ts';
import type { View } from './view.ts';

/** The tools or the prompts of a view. */
export interface Callables {
  /** By published name, in list order. */
  readonly targets: ReadonlyMap<string, Target>;
  readonly sources: ReadonlyMap<Target, Source>;
  /** JSON text of each item on one line, and a digest of each text; empty unless asked for. */
  readonly texts: readonly string[];
  readonly digests: readonly string[];
  /** The items of each upstream, in config order, published or not. */
  readonly byUpstream: readonly NamedItems[];
  /** Published names that are filtered, quarantined or renamed away: no other tool may have them. */
  readonly hidden: ReadonlySet<string>;
  /** Tools with a user interface by their upstream's name, where only one upstream has it. */
  readonly apps: ReadonlyMap<string, Target>;
  readonly quarantined: readonly Quarantined[];
  readonly repaired: readonly Repaired[];
}

/**
 * Names every tool or prompt of a view. A name under an upstream's prefix is that upstream's alone. Of two items that
 * still have the same name, the first in config order, then in its upstream's order, keeps it; the other is quarantined.
 * Only config and offers decide: an upstream that is down keeps its names through its last good offer.
 */
export function nameAll(
  kind: 'tool' | 'prompt',
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
): Callables {
  const targets = new Map<string, Target>();
  const sources = new Map<Target, Source>();
  const texts: string[] = [];
  const digests: string[] = [];
  const byUpstream: NamedItems[] = [];
  const hidden = new Set<string>();
  const apps = new Map<string, Target>();
  const ambiguous = new Set<string>();
  const quarantined: Quarantined[] = [];
  const repaired: Repaired[] = [];

  for (const upstream of view.upstreams) {
    const offer = offers.get(upstream.id);
    if (offer === undefined) continue;
    const named = nameItems(kind, view, upstream, offer, maxChars);
    const made = textsOf(named);
    byUpstream.push(named);
    for (const [position, { reading, general, published, quarantined: record }] of named.items.entries()) {
      if (published?.name !== general) hidden.add(general);
      if (record !== undefined) quarantined.push(record);
      if (published === undefined) continue;
      const { name, target, source } = published;
      const holder = targets.get(name);
      if (holder !== undefined) {
        const why =
          `would be called "${shown(name)}", as "${shown(holder.name)}" of upstream "${holder.upstream}" already is; ` +
          'give one of them another prefix or name';
        quarantined.push(quarantine(upstream.id, kind, reading.key, position, why));
        continue;
      }
      targets.set(name, target);
      sources.set(target, source);
      texts.push(made.texts[position] ?? '');
      digests.push(made.digests[position] ?? '');
      const repair = repairOf(upstream.id, kind, reading);
      if (repair !== undefined) repaired.push(repair);
      if (reading.ui && apps.has(reading.key)) ambiguous.add(reading.key);
      else if (reading.ui) apps.set(reading.key, target);
    }
  }
  for (const name of ambiguous) apps.delete(name);
  return { targets, sources, texts, digests, byUpstream, hidden, apps, quarantined, repaired };
}

/** Returns the number of tools that {@link nameAll} publishes. Makes no texts, and keeps nothing. */
export function countNamed(view: View, offers: ReadonlyMap<string, Offer>, maxChars: number): number {
  const names = new Set<string>();
  for (const upstream of view.upstreams) {
    const offer = offers.get(upstream.id);
    if (offer === undefined) continue;
    const { items } = nameItems('tool', view, upstream, offer, maxChars, false);
    for (const { published } of items) if (published !== undefined) names.add(published.name);
  }
  return names.size;
}

/** The upstream that unlisted names are sent to: the only one without a prefix, if nothing of it is filtered. */
export function fallbackOf(view: View): string | undefined {
  const [only, ...others] = view.upstreams.filter((upstream) => upstream.prefix === '');
  if (only === undefined || others.length > 0 || hasFilter(only) || hasFilter(view)) return undefined;
  return only.id;
}

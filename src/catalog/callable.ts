import { hasFilter } from './names/glob.ts';
import { quarantine, repairOf, type Quarantined, type Repaired } from './item.ts';
import { endpointPath } from '../endpoint-path.ts';
import { shownText } from '../peer-text.ts';
import { isHashed, publishedName } from './names/name.ts';
import { type NamedItem, nameItems, type NamedItems, type Source, type Target } from './names/named-items.ts';
import type { Offer } from './offer.ts';
import type { View, ViewUpstream } from './view.ts';

/** The tools or the prompts of a view. */
export interface Callables {
  /** By published name, in list order. */
  readonly targets: ReadonlyMap<string, Target>;
  readonly sources: ReadonlyMap<Target, Source>;
  /** The items of all upstreams, in config order and in parts, whether or not they are published. */
  readonly parts: readonly NamedItems[];
  /** Published names of items that are filtered, quarantined, withheld or renamed. No other item may have these names. */
  readonly hidden: ReadonlySet<string>;
  /** Published names of items that the lock withholds. They are in `hidden` too. */
  readonly withheld: ReadonlySet<string>;
  /** Published names of tools with a user interface, by the upstream's own name, if only one upstream has a tool of that name. */
  readonly apps: ReadonlyMap<string, string>;
  readonly quarantined: readonly Quarantined[];
  readonly repaired: readonly Repaired[];
}

/**
 * Names every tool or prompt of a view. Only the upstream with a prefix may have names that begin with it. Of two items with the same name,
 * the first in config order, then in the upstream's order, keeps it; the other is quarantined. A name with a hash stays with the upstream
 * of the hash, since an upstream may have searched it. If two upstreams have that hash, neither has the name. Names depend on the config
 * and the offers only: an upstream that is down keeps its names through its last good offer.
 */
export function nameCallables(
  kind: 'tool' | 'prompt',
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
): Callables {
  const targets = new Map<string, Target>();
  const sources = new Map<Target, Source>();
  const parts: NamedItems[] = [];
  const hidden = new Set<string>();
  const withheld = new Set<string>();
  const apps = new Map<string, string>();
  const ambiguous = new Set<string>();
  const quarantined: Quarantined[] = [];
  const repaired: Repaired[] = [];

  for (const upstream of view.upstreams) {
    const offer = offers.get(upstream.id);
    if (offer === undefined) continue;
    for (const { kind: withheldKind, key } of offer.withheld ?? []) {
      if (withheldKind === kind) withheld.add(publishedName(upstream, key, maxChars));
    }
    parts.push(...nameItems(kind, view, upstream, offer, maxChars));
  }
  const holders = hashHolders(parts);
  const withApps = upstreamsWithApps(parts);
  for (const [name, holder] of holders) if (holder === undefined) hidden.add(name);
  for (const { upstream, start, items } of parts) {
    for (const [index, { reading, prefixedName, published, quarantined: quarantineRecord }] of items.entries()) {
      if (published?.name !== prefixedName) hidden.add(prefixedName);
      if (quarantineRecord !== undefined) quarantined.push(quarantineRecord);
      if (published === undefined) continue;
      const { name, target, source } = published;
      const foreign = foreignApp(withApps, upstream, reading);
      if (foreign !== undefined) hidden.add(name);
      const isHeld = holders.has(name) && holders.get(name) !== upstream.id;
      const why = foreign === undefined ? nameClash(name, isHeld, targets.get(name)) : appFault(upstream, foreign);
      if (why !== undefined) {
        quarantined.push(quarantine(upstream.id, kind, reading.key, start + index, why));
        continue;
      }
      targets.set(name, target);
      sources.set(target, source);
      const repair = repairOf(upstream.id, kind, reading);
      if (repair !== undefined) repaired.push(repair);
      if (reading.hasUi && apps.has(reading.key)) ambiguous.add(reading.key);
      else if (reading.hasUi) apps.set(reading.key, name);
    }
  }
  for (const name of ambiguous) apps.delete(name);
  for (const name of withheld) hidden.add(name);
  return { targets, sources, parts, hidden, withheld, apps, quarantined, repaired };
}

/** Returns the reason why an item cannot have a name. @param isHeld whether another upstream has it, by its hash. */
function nameClash(name: string, isHeld: boolean, publishedTarget: Target | undefined): string | undefined {
  const called = `would be called "${shownText(name)}"`;
  if (isHeld) return `${called}, the shortened name of an item of another upstream; give one of them another prefix`;
  if (publishedTarget === undefined) return undefined;
  const { name: own, upstream } = publishedTarget;
  return `${called}, as "${shownText(own)}" of upstream "${upstream}" already is; give one of them another prefix or name`;
}

/** Returns the upstreams with published tools that show a user interface. */
function upstreamsWithApps(parts: readonly NamedItems[]): readonly string[] {
  const hasApp = ({ items }: NamedItems) =>
    items.some(({ reading, published }) => published !== undefined && reading.hasApp);
  return [...new Set(parts.filter((part) => hasApp(part)).map(({ upstream }) => upstream.id))];
}

/** Returns another upstream with apps, for which a tool for apps alone is left out; undefined if the tool stays. */
function foreignApp(
  withApps: readonly string[],
  { id }: ViewUpstream,
  { isAppOnly }: NamedItem['reading'],
): string | undefined {
  return isAppOnly ? withApps.find((one) => one !== id) : undefined;
}

/**
 * Returns the reason why an endpoint has no such tool for apps alone: another upstream has apps there. Clients take the two for one server.
 */
function appFault({ id }: ViewUpstream, foreign: string): string {
  return `is for apps of its own server alone, and upstream "${foreign}" has apps too; ${endpointPath(id)} has it`;
}

/** Returns the upstream of each name that ends in a hash; undefined if several upstreams have it. */
function hashHolders(parts: readonly NamedItems[]): ReadonlyMap<string, string | undefined> {
  const holders = new Map<string, string | undefined>();
  for (const { upstream, items } of parts) {
    for (const { reading, prefixedName, published } of items) {
      if (published?.name !== prefixedName || !isHashed(upstream, reading.key, prefixedName)) continue;
      const isFirst = !holders.has(prefixedName) || holders.get(prefixedName) === upstream.id;
      holders.set(prefixedName, isFirst ? upstream.id : undefined);
    }
  }
  return holders;
}

export interface ToolListSize {
  readonly tools: number;
  /** Estimated number of tokens that the list takes in the context of a model. */
  readonly tokens: number;
}

/** Characters of JSON per token; tokenizers of models differ by about a third. */
const CHARS_PER_TOKEN = 4;

/** Returns the size of the list of tools that {@link nameCallables} publishes, without making texts and without caching. */
export function toolListSize(view: View, offers: ReadonlyMap<string, Offer>, maxChars: number): ToolListSize {
  const parts = view.upstreams.flatMap((upstream) => {
    const offer = offers.get(upstream.id);
    return offer === undefined ? [] : [...nameItems('tool', view, upstream, offer, maxChars, false)];
  });
  const withApps = upstreamsWithApps(parts);
  const names = new Set<string>();
  let chars = 0;
  for (const { upstream, items } of parts) {
    for (const { reading, published } of items) {
      if (published === undefined || names.has(published.name)) continue;
      if (foreignApp(withApps, upstream, reading) !== undefined) continue;
      names.add(published.name);
      chars += published.source.item.toString().length;
    }
  }
  return { tools: names.size, tokens: Math.ceil(chars / CHARS_PER_TOKEN) };
}

/**
 * Returns the upstream that gets requests with unlisted names: the only one without a prefix. Returns undefined if
 * there is not exactly one, or if a filter hides some of its items.
 */
export function fallbackOf(view: View): string | undefined {
  const [only, ...others] = view.upstreams.filter((upstream) => upstream.prefix === '');
  if (only === undefined || others.length > 0 || hasFilter(only) || hasFilter(view)) return undefined;
  return only.id;
}

/**
 * Returns the upstream that gets calls with unlisted names: the fallback, unless its definitions are pinned. A name that it does not
 * list has no definition to compare.
 */
export function callFallbackOf(view: View): string | undefined {
  const id = fallbackOf(view);
  const onChange = view.upstreams.find((upstream) => upstream.id === id)?.onChange;
  return onChange === undefined || onChange === 'warn' ? id : undefined;
}

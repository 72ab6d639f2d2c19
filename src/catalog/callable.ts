import { hasFilter, letsThrough } from './glob.ts';
import { quarantine, readItem, type Quarantined } from './item.ts';
import { publishedName, publishedPrefix, shown } from './name.ts';
import type { RawObject } from '../json/json.ts';
import { type MirroredParam, readMirrored } from '../protocol/mirrored-params.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Offer } from './offer.ts';
import { publishedText } from './publish.ts';
import type { View } from './view.ts';

/** Who answers to a published name, and the upstream's own name for it. */
export interface Owner {
  readonly upstream: string;
  readonly name: string;
}

/** How an upstream lists what it has. */
export interface Source {
  readonly item: RawObject;
  /** Whether in the words of the modern era. */
  readonly isModern: boolean;
  /** Of a tool: the arguments that go into headers, as far as it says so by the rules. */
  readonly mirrored: readonly MirroredParam[];
}

/** The tools or the prompts of a view: what is called by a name. */
export interface Callables {
  /** By published name, in list order. */
  readonly owners: ReadonlyMap<string, Owner>;
  /** Of those owners. */
  readonly sources: ReadonlyMap<Owner, Source>;
  readonly texts: readonly string[];
  /** Published names that were filtered, quarantined or renamed away: nobody may answer to them instead. */
  readonly hidden: ReadonlySet<string>;
  /** Tools with a user interface by their upstream's name, where that is unambiguous. */
  readonly apps: ReadonlyMap<string, Owner>;
  readonly quarantined: readonly Quarantined[];
}

/**
 * Names every tool or prompt of a view. A name under an upstream's prefix is that upstream's alone. Of two that still
 * come to the same name, the one first in config order, then in its upstream's order, has it and the other is
 * quarantined. Only config and offers decide: an upstream that is down keeps its names through its last good offer.
 */
export function nameAll(
  kind: 'tool' | 'prompt',
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
): Callables {
  const prefixes = prefixesOf(view);
  const owners = new Map<string, Owner>();
  const sources = new Map<Owner, Source>();
  const texts: string[] = [];
  const hidden = new Set<string>();
  const apps = new Map<string, Owner>();
  const ambiguous = new Set<string>();
  const quarantined: Quarantined[] = [];

  for (const upstream of view.upstreams) {
    const offer = offers.get(upstream.id);
    const prefix = publishedPrefix(upstream);
    const items = (kind === 'tool' ? offer?.tools : offer?.prompts) ?? [];
    const isModern = offer?.revision === MODERN;
    for (const [position, item] of items.entries()) {
      const { key, fault: own, ui } = readItem(kind, item);
      const fault = own ?? (isModern && upstream.isRemote && kind === 'tool' ? headerFault(item) : undefined);
      const general = publishedName(upstream, key, maxChars);
      const reserved = reservedFor(prefixes, prefix, general);
      if (fault !== undefined || reserved !== undefined) {
        const why = fault ?? `would be called "${shown(general)}", a name that only upstream "${reserved}" may have`;
        quarantined.push(quarantine(upstream.id, kind, key, position, why));
        hidden.add(general);
        continue;
      }
      let name = general;
      if (kind === 'tool') {
        if (!letsThrough(upstream, key) || !letsThrough(view, general)) {
          hidden.add(general);
          continue;
        }
        name = Object.hasOwn(view.renames, general) ? (view.renames[general] ?? general) : general;
        if (name !== general) hidden.add(general);
      }
      const holder = owners.get(name);
      if (holder !== undefined) {
        const why =
          `would be called "${shown(name)}", as "${shown(holder.name)}" of upstream "${holder.upstream}" already is; ` +
          'give one of them another prefix or name';
        quarantined.push(quarantine(upstream.id, kind, key, position, why));
        continue;
      }
      const owner = { upstream: upstream.id, name: key };
      owners.set(name, owner);
      sources.set(owner, { item, isModern, mirrored: kind === 'tool' ? mirroredOf(item) : [] });
      texts.push(publishedText(kind, upstream, item, name));
      if (ui && apps.has(key)) ambiguous.add(key);
      else if (ui) apps.set(key, owner);
    }
  }
  for (const name of ambiguous) apps.delete(name);
  return { owners, sources, texts, hidden, apps, quarantined };
}

function mirroredOf(tool: RawObject): readonly MirroredParam[] {
  const schema = tool.object('inputSchema');
  const reading = schema === undefined ? undefined : readMirrored(schema);
  return reading?.kind === 'mirrored' ? reading.params : [];
}

/** Over HTTP, a tool that says wrongly which arguments go into headers must not be offered. */
function headerFault(tool: RawObject): string | undefined {
  const schema = tool.object('inputSchema');
  const reading = schema === undefined ? undefined : readMirrored(schema);
  return reading?.kind === 'invalid' ? reading.why : undefined;
}

/** The upstream that may be asked about what nobody lists: the only one without a prefix, if nothing of it is filtered. */
export function fallbackOf(view: View): string | undefined {
  const [only, ...others] = view.upstreams.filter((upstream) => upstream.prefix === '');
  if (only === undefined || others.length > 0 || hasFilter(only) || hasFilter(view)) return undefined;
  return only.id;
}

/** Published prefixes and whose they are. */
export function prefixesOf(view: View): readonly (readonly [prefix: string, upstream: string])[] {
  return view.upstreams.map((upstream) => [publishedPrefix(upstream), upstream.id]);
}

/**
 * The upstream whose names begin as this one does, by a longer prefix than `prefix`. They are its own whether it lists
 * them or not, and whether it is up or not; otherwise another one could take them while it is away.
 */
export function reservedFor(prefixes: ReturnType<typeof prefixesOf>, prefix: string, name: string): string | undefined {
  return prefixes.find(([longer]) => longer.length > prefix.length && name.startsWith(longer))?.[1];
}

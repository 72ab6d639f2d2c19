import { hasFilter, letsThrough } from './names/glob.ts';
import { quarantine, readItem, repairOf, type Quarantined, type Repaired } from './item.ts';
import { publishedName, publishedPrefix, shown } from './names/name.ts';
import type { RawObject } from '../json/json.ts';
import { type MirroredParam, readMirrored } from '../protocol/mirrored-params.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Offer } from './offer.ts';
import { publishedText } from './publish.ts';
import type { View } from './view.ts';

/** The tool or prompt behind a published name: its upstream, and the upstream's own name for it. */
export interface Target {
  readonly upstream: string;
  readonly name: string;
}

/** A tool or prompt as its upstream lists it. */
export interface Source {
  /** Repaired; otherwise in the upstream's words. */
  readonly item: RawObject;
  /** Whether the upstream speaks 2026-07-28. */
  readonly isModern: boolean;
  /** The arguments of a tool that are repeated in HTTP headers. */
  readonly headerParams: readonly MirroredParam[];
}

/** The tools or the prompts of a view. */
export interface Callables {
  /** By published name, in list order. */
  readonly targets: ReadonlyMap<string, Target>;
  readonly sources: ReadonlyMap<Target, Source>;
  readonly texts: readonly string[];
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
 *
 * @param withTexts whether the texts of the list are made as well.
 */
export function nameAll(
  kind: 'tool' | 'prompt',
  view: View,
  offers: ReadonlyMap<string, Offer>,
  maxChars: number,
  withTexts = true,
): Callables {
  const prefixes = prefixesOf(view);
  const targets = new Map<string, Target>();
  const sources = new Map<Target, Source>();
  const texts: string[] = [];
  const hidden = new Set<string>();
  const apps = new Map<string, Target>();
  const ambiguous = new Set<string>();
  const quarantined: Quarantined[] = [];
  const repaired: Repaired[] = [];

  for (const upstream of view.upstreams) {
    const offer = offers.get(upstream.id);
    const prefix = publishedPrefix(upstream);
    const items = (kind === 'tool' ? offer?.tools : offer?.prompts) ?? [];
    const isModern = offer?.revision === MODERN;
    for (const [position, listed] of items.entries()) {
      const reading = readItem(kind, listed, isModern);
      const { key, item } = reading;
      const fault = reading.fault ?? (isModern && upstream.isRemote && kind === 'tool' ? headerFault(item) : undefined);
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
      const holder = targets.get(name);
      if (holder !== undefined) {
        const why =
          `would be called "${shown(name)}", as "${shown(holder.name)}" of upstream "${holder.upstream}" already is; ` +
          'give one of them another prefix or name';
        quarantined.push(quarantine(upstream.id, kind, key, position, why));
        continue;
      }
      const target = { upstream: upstream.id, name: key };
      targets.set(name, target);
      sources.set(target, { item, isModern, headerParams: kind === 'tool' ? headerParamsOf(item) : NO_PARAMS });
      if (withTexts) texts.push(publishedText(kind, upstream, item, name));
      const repair = repairOf(upstream.id, kind, reading);
      if (repair !== undefined) repaired.push(repair);
      if (reading.ui && apps.has(key)) ambiguous.add(key);
      else if (reading.ui) apps.set(key, target);
    }
  }
  for (const name of ambiguous) apps.delete(name);
  return { targets, sources, texts, hidden, apps, quarantined, repaired };
}

const NO_PARAMS: readonly MirroredParam[] = [];

function headerParamsOf(tool: RawObject): readonly MirroredParam[] {
  const schema = tool.object('inputSchema');
  const reading = schema === undefined ? undefined : readMirrored(schema);
  return reading?.kind === 'mirrored' ? reading.params : NO_PARAMS;
}

/** Over HTTP, a tool whose header annotations break the rules must not be published. */
function headerFault(tool: RawObject): string | undefined {
  const schema = tool.object('inputSchema');
  const reading = schema === undefined ? undefined : readMirrored(schema);
  return reading?.kind === 'invalid' ? reading.why : undefined;
}

/** The upstream that unlisted names are sent to: the only one without a prefix, if nothing of it is filtered. */
export function fallbackOf(view: View): string | undefined {
  const [only, ...others] = view.upstreams.filter((upstream) => upstream.prefix === '');
  if (only === undefined || others.length > 0 || hasFilter(only) || hasFilter(view)) return undefined;
  return only.id;
}

/** Published prefixes with the upstreams they belong to. */
export function prefixesOf(view: View): readonly (readonly [prefix: string, upstream: string])[] {
  return view.upstreams.map((upstream) => [publishedPrefix(upstream), upstream.id]);
}

/**
 * Returns another upstream whose prefix the name begins with, unless `prefix` begins with it too. Such names belong to
 * that upstream whether or not it lists them or is up; otherwise another one could take them while it is away.
 *
 * @param prefix the whole prefix of the name's own upstream, of which a cut name has only a part.
 */
export function reservedFor(prefixes: ReturnType<typeof prefixesOf>, prefix: string, name: string): string | undefined {
  return prefixes.find(([other]) => !prefix.startsWith(other) && name.startsWith(other))?.[1];
}

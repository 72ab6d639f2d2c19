import { hash } from 'node:crypto';
import { type MirroredParam, readMirrored } from '../../protocol/framing/mirrored-params.ts';
import { isModernRevision, type Revision } from '../../protocol/revisions.ts';
import { withoutTaskSupport } from '../../protocol/tasks.ts';
import { RawObject } from '../../json/json.ts';
import { quarantine, type Quarantined, readItem, type Reading } from '../item.ts';
import { hasCoreTasks, type Offer } from '../offer.ts';
import { publishedText, toolTextFor } from '../publish.ts';
import type { View, ViewUpstream } from '../view.ts';
import { oncePer } from '../weak-cache.ts';
import { isIncluded } from './glob.ts';
import { shownText } from '../../peer-text.ts';
import { publishedName, publishedPrefix } from './name.ts';
import { prefixesOf, reservedFor } from './prefixes.ts';
import { getOrMake } from '../../map-entries.ts';

/** The tool or prompt behind a published name: its upstream, and the upstream's own name for it. */
export interface Target {
  readonly upstream: string;
  readonly name: string;
}

/** A tool or prompt as its upstream lists it. */
export interface Source {
  /** The repaired item, without support of tasks that its upstream does not declare; otherwise as the upstream sent it. */
  readonly item: RawObject;
  /** True if the upstream speaks 2026-07-28. */
  readonly isModern: boolean;
  /** The arguments of a tool that are repeated in HTTP headers. */
  readonly headerParams: readonly MirroredParam[];
}

/** An item with its name in a view, before names of other upstreams are compared. */
export interface NamedItem {
  readonly reading: Reading;
  /** The name with the upstream's prefix, before the view renames it. */
  readonly prefixedName: string;
  /** Undefined for an item that the view filters out or that cannot be published. */
  readonly published: { readonly name: string; readonly target: Target; readonly source: Source } | undefined;
  /** The record of an item that cannot be published. */
  readonly quarantined: Quarantined | undefined;
}

/** A part ends after this number of items, or of characters: reading them, naming them and making their texts takes a few ms. */
const PART_ITEMS = 100;
const PART_CHARS = 131_072;

/** Returns the end of the part of a list that begins at `start`. A part has at least one item. */
export function partEnd(listed: readonly RawObject[], start: number): number {
  let chars = 0;
  let end = start;
  while (end < listed.length && end - start < PART_ITEMS && chars < PART_CHARS) {
    chars += listed[end]?.toString().length ?? 0;
    end++;
  }
  return end;
}

/** Tools or prompts that follow each other in the list of one upstream, in a view. Immutable, so that catalogs share it. */
export interface NamedItems {
  readonly kind: 'tool' | 'prompt';
  readonly upstream: ViewUpstream;
  /** The position of the first item in the upstream's list. */
  readonly start: number;
  readonly items: readonly NamedItem[];
}

/** Named items by view; then by kind, limit and upstream; then by offer; then by {@link NamedItems.start}. */
const known = new WeakMap<View, Map<string, WeakMap<Offer, Map<number, NamedItems>>>>();

/**
 * Names the tools or prompts of one upstream, in parts ({@link partEnd}). Yields the same objects for the same arguments, so that
 * a catalog of many upstreams names only items of those that changed.
 *
 * @param keep whether to cache the parts.
 */
export function* nameItems(
  kind: 'tool' | 'prompt',
  view: View,
  upstream: ViewUpstream,
  offer: Offer,
  maxChars: number,
  keep = true,
): Generator<NamedItems, void> {
  const ofView = getOrMake(known, view, () => new Map());
  const ofUpstream = getOrMake(ofView, `${kind} ${maxChars} ${upstream.id}`, () => new WeakMap());
  const parts = getOrMake(ofUpstream, offer, () => new Map());
  const listed = kind === 'tool' ? offer.tools : offer.prompts;
  for (let start = 0; start < listed.length;) {
    const named = parts.get(start) ?? makeItems(kind, view, upstream, offer, start, maxChars);
    start += named.items.length;
    if (keep) parts.set(named.start, named);
    yield named;
  }
}

function makeItems(
  kind: 'tool' | 'prompt',
  view: View,
  upstream: ViewUpstream,
  offer: Offer,
  start: number,
  maxChars: number,
): NamedItems {
  const prefixes = prefixesOf(view);
  const prefix = publishedPrefix(upstream);
  const isModern = isModernRevision(offer.revision);
  const hasTasks = kind === 'prompt' || hasCoreTasks(offer);
  const listed = kind === 'tool' ? offer.tools : offer.prompts;
  const items = listed.slice(start, partEnd(listed, start)).map((raw, index): NamedItem => {
    const reading = readItem(kind, raw, isModern);
    const { key, item } = reading;
    const fault = reading.fault ?? (isModern && upstream.isRemote && kind === 'tool' ? headerFault(item) : undefined);
    const prefixedName = publishedName(upstream, key, maxChars);
    const reserved = reservedFor(prefixes, prefix, prefixedName);
    if (fault !== undefined || reserved !== undefined) {
      const why =
        fault ?? `would be called "${shownText(prefixedName)}", a name that only upstream "${reserved}" may have`;
      const quarantined = { ...quarantine(upstream.id, kind, key, start + index, why), published: prefixedName };
      return { reading, prefixedName, published: undefined, quarantined };
    }
    if (kind === 'tool' && (!isIncluded(upstream, key) || !isIncluded(view, prefixedName))) {
      return { reading, prefixedName, published: undefined, quarantined: undefined };
    }
    const isRenamed = kind === 'tool' && Object.hasOwn(view.renames, prefixedName);
    const name = isRenamed ? (view.renames[prefixedName] ?? prefixedName) : prefixedName;
    const headerParams = kind === 'tool' ? headerParamsOf(item) : NO_PARAMS;
    const source = { item: hasTasks ? item : withoutTasks(item), isModern, headerParams };
    const published = { name, target: { upstream: upstream.id, name: key }, source };
    return { reading, prefixedName, published, quarantined: undefined };
  });
  return { kind, upstream, start, items };
}

const makeWithoutTasks = oncePer(withoutTaskSupport);

/**
 * Returns a tool of an upstream without tasks. Clients of one ignore what its tools say of tasks. Those of the gateway, which may have
 * tasks of other upstreams, would call the tool as a task, or not at all.
 */
function withoutTasks(tool: RawObject): RawObject {
  const support = tool.object('execution')?.string('taskSupport');
  return support === undefined || support === 'forbidden' ? tool : makeWithoutTasks(tool);
}

/** The texts of published items, at their positions; empty for other items. */
interface Texts {
  readonly texts: readonly string[];
  /** A digest of each text; empty for an empty text. */
  readonly digests: readonly string[];
}

const texts = new WeakMap<NamedItems, Texts>();

/** Returns whether {@link textsOf} has made the texts already. */
export function hasTexts(named: NamedItems): boolean {
  return texts.has(named);
}

/** Returns the JSON text of each published item on one line. */
export function textsOf(named: NamedItems): Texts {
  return getOrMake(texts, named, () => {
    const { kind, upstream, items } = named;
    const ofItems = items.map(({ published }) =>
      published === undefined ? '' : publishedText(kind, upstream, published.source.item, published.name),
    );
    return { texts: ofItems, digests: ofItems.map((text) => (text === '' ? '' : hash('sha256', text, 'base64url'))) };
  });
}

const revisionTexts = new WeakMap<NamedItems, Map<Revision, readonly (string | undefined)[]>>();

/** Returns the texts of tools in the form of a revision; undefined for a tool without such a form. */
export function toolTextsOf(named: NamedItems, revision: Revision): readonly (string | undefined)[] {
  const ofItems = getOrMake(revisionTexts, named, () => new Map());
  const textOf = ({ published }: NamedItems['items'][number]) => {
    if (published === undefined) return undefined;
    const { item, isModern } = published.source;
    return toolTextFor(revision, named.upstream, item, published.name, isModern);
  };
  return getOrMake(ofItems, revision, () => named.items.map(textOf));
}

const NO_PARAMS: readonly MirroredParam[] = [];

/** Items are immutable, and all catalogs read the same ones. */
const headerParamReading = oncePer((tool: RawObject) => readMirrored(tool.object('inputSchema') ?? RawObject.EMPTY));

function headerParamsOf(tool: RawObject): readonly MirroredParam[] {
  const reading = headerParamReading(tool);
  return reading.kind === 'mirrored' ? reading.params : NO_PARAMS;
}

/** Returns the fault of a tool's header annotations. An upstream over HTTP must not publish such a tool. */
function headerFault(tool: RawObject): string | undefined {
  const reading = headerParamReading(tool);
  return reading.kind === 'invalid' ? reading.why : undefined;
}

import type { LimitName } from '../limits.ts';
import { MAY_BE_BROKEN, RawObject } from '../json/json.ts';
import { type ItemKind, KEY } from './items/kind.ts';
import { LeftOut, repairObject } from './items/repair.ts';
import { losesOutputSchema } from './items/revision-text.ts';
import { shapeOf } from './items/shapes.ts';
import { cleanItemText, replaceLoneSurrogates } from './items/texts.ts';
import { unlessMalformed } from '../json/malformed.ts';
import { hasUnseen, shownText } from '../peer-text.ts';
import { getOrMake } from '../map-entries.ts';

/** An item that an upstream lists and that the catalog does not publish. */
export interface Quarantined {
  readonly upstream: string;
  readonly kind: ItemKind;
  /** The item's key, cut and without unseen characters, or its position if it has no key. */
  readonly name: string;
  /** The name or URI that clients would use, if no other item has it. A view may rename it. */
  readonly published?: string;
  /** The reason in words: completes "the item …". */
  readonly why: string;
  /** The fixed bound that the item exceeds. */
  readonly limit?: LimitName | undefined;
  /** True if clients could read the item, and the lock withholds it. */
  readonly isWithheld?: boolean;
  /** True if it stands for all lists of the upstream, which are refused. */
  readonly isRefusal?: boolean;
}

/** The record of a published item that differs from the item that the upstream lists. */
export interface Repaired
  extends Pick<Quarantined, 'upstream' | 'kind' | 'name'>, Pick<Reading, 'leftOut' | 'cleanedTexts'> {}

/** The result of reading one item of an upstream's list. */
export interface Reading {
  /** The upstream's own name, URI or URI template; empty if there is none. */
  readonly key: string;
  /** The reason why the item cannot be published; undefined if it can. */
  readonly fault: string | undefined;
  /** True if the tool has a user interface, whose HTML calls tools by their unprefixed names. */
  readonly hasUi: boolean;
  /** True if the tool names the resource of its user interface, so that its server has an app. */
  readonly hasApp: boolean;
  /** True if only the apps of the tool's own server may call it, and no model. */
  readonly isAppOnly: boolean;
  /** The repaired item; otherwise as the upstream sent it. */
  readonly item: RawObject;
  /** Paths of the members that are left out because clients could not read them, such as `annotations.title`. */
  readonly leftOut: readonly string[];
  /** The number of titles and descriptions from which hidden characters were removed. */
  readonly cleanedTexts: number;
}

const OUTPUT = 'outputSchema (for clients before 2026-07-28)';

const NO_LABELS: ReadonlySet<string> = new Set();
/** The `name` of a resource or template is a label for people, not a key. */
const NAME_LABEL: ReadonlySet<string> = new Set(['name']);

/** Returns the item's key as the upstream sent it, as raw text if it is not well-formed. */
export function keyOf(kind: ItemKind, item: RawObject): string {
  return unlessMalformed(() => item.string(KEY[kind]), item.raw(KEY[kind])) ?? '';
}

/** Returns the reason why an item with this key cannot be published; undefined if it can. */
function keyFault(kind: ItemKind, key: string): string | undefined {
  if (key === '') return `has no "${KEY[kind]}"`;
  return hasUnseen(key) ? `has control or invisible characters in its "${KEY[kind]}"` : undefined;
}

/** Returns the reason why an item cannot be repaired. */
function requiredFault(kind: ItemKind, item: RawObject): string {
  if (kind !== 'tool') return 'has no "name"';
  return item.raw('inputSchema')?.startsWith('{') === true
    ? 'has an "inputSchema" whose "type" is not "object"'
    : 'has an "inputSchema" that is not an object';
}

const NO_UI = { hasUi: false, hasApp: false, isAppOnly: false };

/**
 * Returns what a tool says about user interfaces in its `_meta`. Its `visibility` may leave out the model.
 *
 * @see https://modelcontextprotocol.io/extensions/apps/overview
 */
function uiOf(tool: RawObject): Pick<Reading, 'hasUi' | 'hasApp' | 'isAppOnly'> {
  const meta = tool.object('_meta');
  if (meta === undefined) return NO_UI;
  // Rewriting reads `_meta` too, so an error in it must surface here.
  const ui = meta.object('ui');
  const namesApp = meta.raw('ui/resourceUri') !== undefined;
  const visibility: unknown = JSON.parse(ui?.raw('visibility') ?? 'null');
  return {
    hasUi: ui !== undefined || namesApp,
    hasApp: ui?.raw('resourceUri') !== undefined || namesApp,
    isAppOnly: Array.isArray(visibility) && !visibility.includes('model'),
  };
}

/** Reads and repairs one item. Checks the whole text: clients refuse the whole list for one unreadable item. */
function read(kind: ItemKind, item: RawObject, isModern: boolean): Reading {
  const key = keyOf(kind, item);
  const refused = (fault: string): Reading => ({ key, fault, item, ...NO_UI, leftOut: [], cleanedTexts: 0 });
  return unlessMalformed(() => {
    const text = item.toString();
    if (MAY_BE_BROKEN.test(text)) JSON.parse(text);
    const fault = keyFault(kind, key);
    if (fault !== undefined) return refused(fault);
    const labels = kind === 'resource' || kind === 'template' ? NAME_LABEL : NO_LABELS;
    const { json, cleaned } = cleanItemText(replaceLoneSurrogates(text), labels);
    const leftOut = new LeftOut();
    const before = json === text ? item : RawObject.parse(json);
    const after = repairObject(shapeOf(kind, isModern), before, '', leftOut);
    if (after === undefined) return refused(requiredFault(kind, item));
    return {
      key,
      fault: undefined,
      ...(kind === 'tool' ? uiOf(after) : NO_UI),
      item: after,
      leftOut: kind === 'tool' && losesOutputSchema(after, isModern) ? [...leftOut.paths, OUTPUT] : leftOut.paths,
      cleanedTexts: cleaned,
    };
  }, refused('is not well-formed JSON'));
}

/** Results of reading, by the item. Items are immutable, and the catalogs of all views read the same ones. */
const readings = { modern: new WeakMap<RawObject, Reading>(), legacy: new WeakMap<RawObject, Reading>() };

/**
 * Returns the result of reading an item; the same object for the same item.
 *
 * @param isModern whether the upstream speaks 2026-07-28.
 */
export function readItem(kind: ItemKind, item: RawObject, isModern: boolean): Reading {
  const known = isModern ? readings.modern : readings.legacy;
  return getOrMake(known, item, () => read(kind, item, isModern));
}

/** Returns whether {@link readItem} has read the item already. */
export function isRead(item: RawObject, isModern: boolean): boolean {
  return (isModern ? readings.modern : readings.legacy).has(item);
}

/** Returns the record of an item that is left out. `position` counts from 0 and identifies an item without a key. */
export function quarantine(upstream: string, kind: ItemKind, key: string, position: number, why: string): Quarantined {
  return { upstream, kind, name: key === '' ? `#${position + 1}` : shownText(key), why };
}

/** Returns the record of an item that was changed; undefined if it is published unchanged. */
export function repairOf(upstream: string, kind: ItemKind, reading: Reading): Repaired | undefined {
  const { key, leftOut, cleanedTexts } = reading;
  if (leftOut.length === 0 && cleanedTexts === 0) return undefined;
  return { upstream, kind, name: shownText(key), leftOut: leftOut.map((path) => shownText(path)), cleanedTexts };
}

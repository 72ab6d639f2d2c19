import type { LimitName } from '../limits.ts';
import { MAY_BE_BROKEN, RawObject } from '../json/json.ts';
import { type ItemKind, KEY } from './items/kind.ts';
import { LeftOut, repairObject } from './items/repair.ts';
import { losesOutputSchema } from './items/revision-text.ts';
import { shapeOf } from './items/shapes.ts';
import { cleanItemText, withoutLoneSurrogates } from './items/texts.ts';
import { isMalformed } from './malformed.ts';
import { hasUnseen, shown } from './names/name.ts';

/** An item that an upstream lists and the catalog does not publish. */
export interface Quarantined {
  readonly upstream: string;
  readonly kind: ItemKind;
  /** The item's key as far as it can be read and shown, else its position. */
  readonly name: string;
  /** The reason in words: completes "the item …". */
  readonly why: string;
  /** The fixed bound that the item is beyond. */
  readonly limit?: LimitName | undefined;
}

/** A published item that differs from the upstream's. */
export interface Repaired {
  readonly upstream: string;
  readonly kind: ItemKind;
  readonly name: string;
  /** Members that are left out since clients could not read them, as paths such as `annotations.title`. */
  readonly leftOut: readonly string[];
  /** Titles and descriptions that held hidden characters. */
  readonly cleanedTexts: number;
}

/** One item of an upstream's list, read. */
export interface Reading {
  /** The upstream's own name, URI or URI template; empty when there is none. */
  readonly key: string;
  /** Why the item cannot be published. */
  readonly fault: string | undefined;
  /** Whether the tool brings a user interface, whose HTML calls tools by their unprefixed names. */
  readonly ui: boolean;
  /** The item as clients can read it, otherwise in the upstream's words. */
  readonly item: RawObject;
  readonly leftOut: readonly string[];
  readonly cleanedTexts: number;
}

const OUTPUT = 'outputSchema (for clients before 2026-07-28)';

const NO_LABELS: ReadonlySet<string> = new Set();
/** The name of a resource or template is shown to people, and names nothing. */
const NAME_LABEL: ReadonlySet<string> = new Set(['name']);

/** The item's key as it came; raw text where that is not well-formed. */
export function keyOf(kind: ItemKind, item: RawObject): string {
  try {
    return item.string(KEY[kind]) ?? '';
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    return item.raw(KEY[kind]) ?? '';
  }
}

function keyFault(kind: ItemKind, key: string): string | undefined {
  if (key === '') return `has no "${KEY[kind]}"`;
  return hasUnseen(key) ? `has control or invisible characters in its "${KEY[kind]}"` : undefined;
}

/** Why an item that cannot be repaired cannot. */
function requiredFault(kind: ItemKind, item: RawObject): string {
  if (kind !== 'tool') return 'has no "name"';
  return item.raw('inputSchema')?.startsWith('{') === true
    ? 'has an "inputSchema" whose "type" is not "object"'
    : 'has an "inputSchema" that is not an object';
}

function hasUi(item: RawObject): boolean {
  const meta = item.object('_meta');
  // Rewriting will look into it too, so it is judged here.
  return meta?.object('ui') !== undefined || meta?.raw('ui/resourceUri') !== undefined;
}

/** Reads one item and repairs it. Clients would lose the whole list over one they cannot read, so it is judged to its last escape. */
function read(kind: ItemKind, item: RawObject, isModern: boolean): Reading {
  const key = keyOf(kind, item);
  const refused = (fault: string): Reading => ({ key, fault, ui: false, item, leftOut: [], cleanedTexts: 0 });
  try {
    const text = item.toString();
    if (MAY_BE_BROKEN.test(text)) JSON.parse(text);
    const fault = keyFault(kind, key);
    if (fault !== undefined) return refused(fault);
    const labels = kind === 'resource' || kind === 'template' ? NAME_LABEL : NO_LABELS;
    const { json, cleaned } = cleanItemText(withoutLoneSurrogates(text), labels);
    const leftOut = new LeftOut();
    const before = json === text ? item : RawObject.parse(json);
    const after = repairObject(shapeOf(kind, isModern), before, '', leftOut);
    if (after === undefined) return refused(requiredFault(kind, item));
    return {
      key,
      fault: undefined,
      ui: kind === 'tool' && hasUi(after),
      item: after,
      leftOut: kind === 'tool' && losesOutputSchema(after, isModern) ? [...leftOut.paths, OUTPUT] : leftOut.paths,
      cleanedTexts: cleaned,
    };
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    return refused('is not well-formed JSON');
  }
}

/** Items are immutable, and every catalog of every view reads the same ones. */
const readings = { modern: new WeakMap<RawObject, Reading>(), legacy: new WeakMap<RawObject, Reading>() };

/** @param isModern whether the upstream speaks 2026-07-28. */
export function readItem(kind: ItemKind, item: RawObject, isModern: boolean): Reading {
  const known = isModern ? readings.modern : readings.legacy;
  let reading = known.get(item);
  if (reading === undefined) {
    reading = read(kind, item, isModern);
    known.set(item, reading);
  }
  return reading;
}

/** Returns the record of an item that is left out; `position` names one that has no key. */
export function quarantine(upstream: string, kind: ItemKind, key: string, position: number, why: string): Quarantined {
  return { upstream, kind, name: key === '' ? `#${position + 1}` : shown(key), why };
}

/** Returns the record of an item that was changed; undefined for one that is published as it came. */
export function repairOf(upstream: string, kind: ItemKind, reading: Reading): Repaired | undefined {
  const { key, leftOut, cleanedTexts } = reading;
  if (leftOut.length === 0 && cleanedTexts === 0) return undefined;
  return { upstream, kind, name: shown(key), leftOut: leftOut.map(shown), cleanedTexts };
}

import { MAY_BE_BROKEN, type RawObject } from '../json/json.ts';
import { isMalformed } from './malformed.ts';
import { hasUnseen, shown } from './name.ts';

export type ItemKind = 'tool' | 'prompt' | 'resource' | 'template';

/** An item an upstream lists and we do not offer, and the reason in words. */
export interface Quarantined {
  readonly upstream: string;
  readonly kind: ItemKind;
  /** What the item is called by, as far as that can be read and shown. */
  readonly name: string;
  readonly why: string;
}

/** What the catalog needs to know of one item. */
export interface Reading {
  /** The upstream's own name, URI or URI template; empty when there is none. */
  readonly key: string;
  /** Why the item cannot be offered. */
  readonly fault: string | undefined;
  /** A tool that brings a user interface, whose HTML calls tools by their unprefixed names. */
  readonly ui: boolean;
  /** A tool whose schema leaves out its type. */
  readonly typeless: boolean;
}

const KEY: Readonly<Record<ItemKind, string>> = {
  tool: 'name',
  prompt: 'name',
  resource: 'uri',
  template: 'uriTemplate',
};

function keyOf(kind: ItemKind, item: RawObject): string {
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

function readTool(item: RawObject, key: string): Reading {
  const schema = item.object('inputSchema');
  const typeless = schema !== undefined && schema.raw('type') === undefined;
  let fault = keyFault('tool', key);
  if (schema === undefined) fault ??= 'has an "inputSchema" that is not an object';
  else if (!typeless && schema.string('type') !== 'object')
    fault ??= 'has an "inputSchema" whose "type" is not "object"';
  return { key, fault, ui: hasUi(item), typeless };
}

function hasUi(item: RawObject): boolean {
  const meta = item.object('_meta');
  // Rewriting will look into it too, so it is judged here.
  return meta?.object('ui') !== undefined || meta?.raw('ui/resourceUri') !== undefined;
}

/** One item that clients could not read would cost them the whole list, so it is judged down to its escapes. */
function judge(kind: ItemKind, item: RawObject): Reading {
  const key = keyOf(kind, item);
  try {
    const text = item.toString();
    if (MAY_BE_BROKEN.test(text)) JSON.parse(text);
    if (kind === 'tool') return readTool(item, key);
    const fault = keyFault(kind, key) ?? (item.string('name') === undefined ? 'has no "name"' : undefined);
    return { key, fault, ui: false, typeless: false };
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    return { key, fault: 'is not well-formed JSON', ui: false, typeless: false };
  }
}

/** Items are immutable, and every catalog of every view asks about the same ones. */
const readings = new WeakMap<RawObject, Reading>();

export function readItem(kind: ItemKind, item: RawObject): Reading {
  let reading = readings.get(item);
  if (reading === undefined) {
    reading = judge(kind, item);
    readings.set(item, reading);
  }
  return reading;
}

/** Sets an item aside; `position` names one that has no other name. */
export function quarantine(upstream: string, kind: ItemKind, key: string, position: number, why: string): Quarantined {
  return { upstream, kind, name: key === '' ? `#${position + 1}` : shown(key), why };
}

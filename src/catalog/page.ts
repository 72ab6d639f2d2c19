import { jsonOf } from '../json/record.ts';
import type { ListKind } from './offer.ts';

/** The members of list results that hold the items. */
export const LIST_NAMES = ['tools', 'prompts', 'resources', 'resourceTemplates'] as const;
export type ListName = (typeof LIST_NAMES)[number];

/** Returns the kind of a list: the one whose `list_changed` notification covers it. */
export function kindOf(list: ListName): ListKind {
  return list === 'resourceTemplates' ? 'resources' : list;
}

/** The content of a cursor before it is sealed: an offset in one state of a list. */
export interface Cursor {
  readonly list: ListName;
  readonly digest: string;
  readonly offset: number;
}

/** One page of a list, as JSON texts of its items. */
export interface Page {
  readonly items: readonly string[];
  /** Offset of the next page; undefined on the last page. */
  readonly next: number | undefined;
}

/** Returns the page that begins at `offset` and has at most `size` items. */
export function page(items: readonly string[], offset: number, size: number): Page {
  const end = offset + size;
  return { items: items.slice(offset, end), next: end < items.length ? end : undefined };
}

export function cursorText({ list, digest, offset }: Cursor): string {
  return JSON.stringify([list, digest, offset]);
}

export function parseCursor(text: string): Cursor | undefined {
  const value = jsonOf(text);
  if (!Array.isArray(value) || value.length !== 3) return undefined;
  const [name, digest, offset]: unknown[] = value;
  const list = LIST_NAMES.find((known) => known === name);
  if (list === undefined || typeof digest !== 'string') return undefined;
  if (typeof offset !== 'number' || !Number.isSafeInteger(offset) || offset < 0) return undefined;
  return { list, digest, offset };
}

import type { ListKind } from './offer.ts';

/** Members that list results are named by. */
export const LIST_NAMES = ['tools', 'prompts', 'resources', 'resourceTemplates'] as const;
export type ListName = (typeof LIST_NAMES)[number];

export function kindOf(list: ListName): ListKind {
  return list === 'resourceTemplates' ? 'resources' : list;
}

/** What a cursor means, before it is sealed: the place in exactly this state of a list. */
export interface Cursor {
  readonly list: ListName;
  readonly digest: string;
  readonly offset: number;
}

export interface Page {
  readonly items: readonly string[];
  /** Offset of the page after it; undefined for the last. */
  readonly next: number | undefined;
}

export function page(items: readonly string[], offset: number, size: number): Page {
  const end = offset + size;
  return { items: items.slice(offset, end), next: end < items.length ? end : undefined };
}

export function cursorText({ list, digest, offset }: Cursor): string {
  return JSON.stringify([list, digest, offset]);
}

/** Reads what {@link cursorText} wrote; undefined for anything else. */
export function parseCursor(text: string): Cursor | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(value) || value.length !== 3) return undefined;
  const [name, digest, offset]: unknown[] = value;
  const list = LIST_NAMES.find((known) => known === name);
  if (list === undefined || typeof digest !== 'string') return undefined;
  if (typeof offset !== 'number' || !Number.isSafeInteger(offset) || offset < 0) return undefined;
  return { list, digest, offset };
}

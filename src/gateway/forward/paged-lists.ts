import { LIMITS, type LimitName } from '../../limits.ts';

/** A character of an item takes up to two bytes. */
const CHAR_BYTES = 2;
/** Memory of an entry besides its texts. */
const ENTRY_BYTES = 512;

interface PagedList {
  readonly items: readonly string[];
  /** The pages that were made, by the offset of their first item. */
  readonly pages: Map<number, Buffer>;
  bytes: number;
}

/**
 * Lists that are answered in pages, the least recently used one first. Their items are for cursors whose list has changed since. The texts of
 * their pages are shared by many clients.
 */
export class PagedLists {
  readonly #lists = new Map<string, PagedList>();
  readonly #onLimit: (limit: LimitName) => void;
  #bytes = 0;

  /** @param onLimit runs when a list is removed for another one, or is too large to be kept. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  clear(): void {
    this.#lists.clear();
    this.#bytes = 0;
  }

  itemsOf(key: string): readonly string[] | undefined {
    return this.#lists.get(key)?.items;
  }

  /** Returns the page at an offset of a list, and keeps the list. Makes the page if it is not kept. */
  page(key: string, items: readonly string[], offset: number, make: () => Buffer): Buffer {
    const list = this.#lists.get(key) ?? { items, pages: new Map<number, Buffer>(), bytes: bytesOf(items) };
    const known = list.pages.get(offset);
    const page = known ?? make();
    this.#remove(key);
    if (known === undefined) {
      list.pages.set(offset, page);
      list.bytes += page.length;
    }
    this.#lists.set(key, list);
    this.#bytes += list.bytes;
    for (const oldest of this.#lists.keys()) {
      if (this.#bytes <= LIMITS.pagedListsBytes) break;
      this.#onLimit('pagedListsBytes');
      this.#remove(oldest);
    }
    return page;
  }

  #remove(key: string): void {
    this.#bytes -= this.#lists.get(key)?.bytes ?? 0;
    this.#lists.delete(key);
  }
}

function bytesOf(items: readonly string[]): number {
  return items.reduce((sum, { length }) => sum + CHAR_BYTES * length, ENTRY_BYTES);
}

import { LIMITS, type LimitName } from '../../limits.ts';

/** Texts of list pages, so that many clients share one text. The least recently used page is removed first. */
export class PageCache {
  readonly #pages = new Map<string, Buffer>();
  readonly #onLimit: (limit: LimitName) => void;
  #bytes = 0;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  clear(): void {
    this.#pages.clear();
    this.#bytes = 0;
  }

  /** Returns the page of the key. Makes the page if it is not cached. */
  get(key: string, make: () => Buffer): Buffer {
    const known = this.#pages.get(key);
    if (known !== undefined) {
      this.#pages.delete(key);
      this.#pages.set(key, known);
      return known;
    }
    const made = make();
    this.#pages.set(key, made);
    this.#bytes += made.length;
    for (const [oldest, page] of this.#pages) {
      if (this.#bytes <= LIMITS.listPagesBytes) break;
      this.#onLimit('listPagesBytes');
      this.#pages.delete(oldest);
      this.#bytes -= page.length;
    }
    return made;
  }
}

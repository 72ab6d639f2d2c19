const MAX_TEXTS = 1_000;
const MAX_CHARS = 4_096;

/** What a request alone says: it is not seen again. */
const OWN = 'progressToken';

/** What is made of texts that peers send again and again, made once. A long text, or one that names a single request, is not kept. */
export class Memo<T> {
  readonly #made = new Map<string, T>();

  of(text: string, make: () => T): T {
    const known = this.#made.get(text);
    if (known !== undefined) return known;
    const made = make();
    if (text.length > MAX_CHARS || text.includes(OWN)) return made;
    if (this.#made.size >= MAX_TEXTS) this.#made.clear();
    this.#made.set(text, made);
    return made;
  }
}

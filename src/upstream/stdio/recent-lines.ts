import { stripVTControlCharacters } from 'node:util';

/** Control characters but for the tab, line separators, and what turns the direction of writing. */
const UNPRINTABLE = /(?!\t)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** What a peer wrote, as one short line that does nothing to a terminal or a log. */
export function printable(text: string, limitChars: number): string {
  const line = stripVTControlCharacters(text.slice(0, limitChars * 2)).replaceAll(UNPRINTABLE, '');
  return line.length > limitChars ? `${line.slice(0, limitChars)}…` : line;
}

/** The last lines of a stream, in bounded memory. */
export class RecentLines {
  readonly #limitChars: number;
  readonly #lines: string[] = [];
  #chars = 0;

  constructor(limitChars: number) {
    this.#limitChars = limitChars;
  }

  /** @param line longer than the limit, it is cut */
  add(line: string): void {
    const kept = printable(line, this.#limitChars);
    if (kept.trim() === '') return;
    this.#lines.push(kept);
    this.#chars += kept.length;
    while (this.#chars > this.#limitChars && this.#lines.length > 1) {
      this.#chars -= this.#lines.shift()?.length ?? 0;
    }
  }

  get last(): string | undefined {
    return this.#lines.at(-1);
  }

  toString(): string {
    return this.#lines.join('\n');
  }
}

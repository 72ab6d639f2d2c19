import { stripVTControlCharacters } from 'node:util';

/** Matches control characters except the tab, line separators, and characters that change the text direction. */
const UNPRINTABLE = /(?!\t)[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** Returns text of a peer as one short line without control characters, which is safe in terminals and logs. */
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

  /** Adds a line. A line longer than the limit is cut; blank lines are ignored. */
  add(line: string): void {
    const kept = printable(line, this.#limitChars);
    if (kept.trim() === '') return;
    this.#lines.push(kept);
    this.#chars += kept.length;
    while (this.#chars > this.#limitChars && this.#lines.length > 1) {
      this.#chars -= this.#lines.shift()?.length ?? 0;
    }
  }

  /** The latest line; undefined before the first. */
  get last(): string | undefined {
    return this.#lines.at(-1);
  }

  /** The lines, the latest last. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  toString(): string {
    return this.#lines.join('\n');
  }
}

import { stripVTControlCharacters } from 'node:util';
import { shownLines } from '../../peer-text.ts';

/** Returns the output of a program as one line of at most `limitChars`, without colours, and with unseen characters as escapes. */
export function printedLine(text: string, limitChars: number): string {
  const line = stripVTControlCharacters(text.slice(0, limitChars * 2));
  return shownLines(line.replaceAll(/[\r\n]+/g, ' ').trimEnd(), limitChars);
}

/** A line of a help text that describes an option. Programs print such a text after the error that it is about. */
const OPTION = /^\s+--?[A-Za-z]/;

/** The last lines of a stream, in bounded memory, without those that describe options. */
export class RecentLines {
  readonly #limitChars: number;
  readonly #lines: string[] = [];
  #chars = 0;

  constructor(limitChars: number) {
    this.#limitChars = limitChars;
  }

  /** Adds a line, as {@link printedLine} returns it. Blank lines and options are ignored. */
  add(line: string): void {
    if (line.trim() === '' || OPTION.test(line)) return;
    this.#lines.push(line);
    this.#chars += line.length;
    while (this.#chars > this.#limitChars && this.#lines.length > 1) {
      this.#chars -= this.#lines.shift()?.length ?? 0;
    }
  }

  get last(): string | undefined {
    return this.#lines.at(-1);
  }

  get lines(): readonly string[] {
    return this.#lines;
  }

  toString(): string {
    return this.#lines.join('\n');
  }
}

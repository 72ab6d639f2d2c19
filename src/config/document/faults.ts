import type { Document } from './document.ts';
import { type Path, type Problem, problemLine } from './problem.ts';
import { noSuch } from './suggest.ts';

/** Collects what is wrong with the settings of one file. */
export class Faults {
  /** Each of them keeps the config from being used. */
  readonly problems: Problem[] = [];
  /** Ignored or suspicious settings, one line each. */
  readonly warnings: string[] = [];
  readonly #document: Pick<Document, 'problem'>;

  constructor(document: Pick<Document, 'problem'>) {
    this.#document = document;
  }

  /** Adds a problem of the setting at a path. */
  refuse(path: Path, message: string, part?: 'key' | 'value'): void {
    this.problems.push(this.#document.problem(path, message, part));
  }

  /** Adds a warning about the setting at a path. */
  warn(path: Path, message: string, part?: 'key' | 'value'): void {
    this.warnings.push(problemLine(this.#document.problem(path, message, part)));
  }

  /** Returns the value of a name in the setting at a path. A name without one is a problem. @param kind of the name, in words. */
  resolve(path: Path, kind: string, name: string, values: ReadonlyMap<string, string>): string | undefined {
    const value = values.get(name);
    if (value === undefined) this.refuse(path, noSuch(kind, name, values.keys()));
    return value;
  }
}

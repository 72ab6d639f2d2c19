import { basename } from 'node:path';

/** Path of a value in the file: keys and list indexes from the top. */
export type Path = readonly (string | number)[];

/**
 * One problem in a config file. Lines and columns count from 1; line 0 means the file as a whole. Without a name of a file, there is none. Never contains an
 * expanded value.
 */
export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** The path of the value, as in `mcpServers.github.args[0]`; empty for the file as a whole. */
  readonly key: string;
  readonly message: string;
}

/** Returns a problem of a file as a whole, or of an option of the command line. */
export function problemOfWhole(file: string, message: string, key = ''): Problem {
  return { file, line: 0, column: 0, key, message };
}

/** Compares problems of one file by their places in it. */
export function byPlace(one: Problem, other: Problem): number {
  return one.line - other.line || one.column - other.column;
}

/** Reports that the file cannot be used. The message lists every problem, one per line, in file order. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[], cause?: unknown) {
    const inOrder = problems.toSorted(byPlace);
    super(inOrder.map((problem) => problemLine(problem)).join('\n'), { cause });
    this.problems = inOrder;
  }
}

/** Returns the problems for stderr, one per line. A line that names no place in the file begins as other errors of the command line. */
export function problemsText({ problems }: ConfigError): string {
  return problems.map((problem) => `${problem.line === 0 ? 'linkspan: ' : ''}${problemLine(problem)}\n`).join('');
}

/** Returns a problem as in `config.yaml:5:16 mcpServers.github.timeouts.call: expected …`. */
export function problemLine({ file, line, column, key, message }: Problem): string {
  if (file === '') return message;
  const at = line === 0 ? file : `${file}:${line}:${column}`;
  return `${at}${key === '' ? '' : ` ${key}`}: ${message}`;
}

/** Returns the position of a problem as in `config.yaml:5:32, mcpServers.github.headers.Authorization`. */
export function placeText({ file, line, column, key }: Problem): string {
  return `${basename(file)}${line === 0 ? '' : `:${line}:${column}`}, ${key}`;
}

/** Returns a name without what follows `=`, `:` or a blank: people write the value there, which may be secret. */
export function withoutValue(name: string): string {
  return name.replace(/([=:\s]).*/s, '$1…');
}

/** Returns a path as text, as in `mcpServers.github.args[0]`. */
export function keyText(path: Path): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (/^[\w$-]+$/.test(step)) text += text === '' ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

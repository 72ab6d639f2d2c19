import { basename } from 'node:path';

/** Where a value stands in the file's data: keys and list positions from the top. */
export type Path = readonly (string | number)[];

/** One thing wrong with a config file. Lines and columns count from 1; line 0 is the file as a whole. Never holds an expanded value. */
export interface Problem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** As in `mcpServers.github.args[0]`; empty for the file as a whole. */
  readonly key: string;
  readonly message: string;
}

/** The file cannot be used. The message is every problem, one a line, in the order of the file. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[], cause?: unknown) {
    const inOrder = problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
    super(inOrder.map((problem) => problemLine(problem)).join('\n'), { cause });
    this.problems = inOrder;
  }
}

/** `config.yaml:5:16 mcpServers.github.timeouts.call: expected …` */
export function problemLine({ file, line, column, key, message }: Problem): string {
  const at = line === 0 ? file : `${file}:${line}:${column}`;
  return `${at}${key === '' ? '' : ` ${key}`}: ${message}`;
}

/** `config.yaml:5:32, mcpServers.github.headers.Authorization` */
export function placeText({ file, line, column, key }: Problem): string {
  return `${basename(file)}${line === 0 ? '' : `:${line}:${column}`}, ${key}`;
}

export function keyText(path: Path): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else if (/^[\w$-]+$/.test(step)) text += text === '' ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text;
}

import type { StdioTarget } from '../../../config/values/upstream-config.ts';

/** The program of a process that is about to start. */
export type Launch = Pick<StdioTarget, 'command' | 'args' | 'env' | 'cwd'>;

/** The output of a printer: a program of ours that a wrapper runs in place of the server. */
export interface PrinterOutput {
  /** The command (`npx`), or the path of the program (`uvx`). */
  readonly text: string;
  readonly env: Readonly<Record<string, string>>;
}

export const PRINTER_BEGIN = 'linkspan-command';
export const PRINTER_END = 'linkspan-end';

/** Environment variables of the printer that the wrapper has not set for the server. */
const PRINTER_VARIABLES = new Set(['_', 'SHLVL', 'OLDPWD', 'npm_config_script_shell']);

export function parsePrinterOutput(output: string): PrinterOutput | undefined {
  const parts = output.split('\0');
  // Package scripts may have printed other text before.
  const begin = parts.findIndex((part) => part.endsWith(PRINTER_BEGIN));
  const end = parts.lastIndexOf(PRINTER_END);
  const text = parts[begin + 1];
  if (begin < 0 || end < begin + 2 || text === undefined || text === '') return undefined;
  const variables = parts.slice(begin + 2, end).map((part): [string, string] => {
    const at = part.indexOf('=');
    return [part.slice(0, at), part.slice(at + 1)];
  });
  const env = Object.fromEntries(variables.filter(([name]) => name !== '' && !PRINTER_VARIABLES.has(name)));
  return { text, env };
}

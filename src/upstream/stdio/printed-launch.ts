/** How to start a server. */
export interface Launch {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

/** The output of a printer: a program that a wrapper runs in place of a server. */
export interface Printed {
  /** The command, or the path of the program. */
  readonly text: string;
  readonly env: Readonly<Record<string, string>>;
}

export const BEGIN = 'linkspan-command';
export const END = 'linkspan-end';

/** Variables of the printer that are not the wrapper's. */
const NOT_PASSED_ON = new Set(['_', 'SHLVL', 'OLDPWD', 'npm_config_script_shell']);

/** Reads the output of a printer. Returns undefined for any other output. */
export function parsePrinted(output: string): Printed | undefined {
  const parts = output.split('\0');
  // Package scripts may have printed something before.
  const begin = parts.findIndex((part) => part.endsWith(BEGIN));
  const end = parts.lastIndexOf(END);
  const text = parts[begin + 1];
  if (begin < 0 || end < begin + 2 || text === undefined || text === '') return undefined;
  const variables = parts.slice(begin + 2, end).map((part): [string, string] => {
    const at = part.indexOf('=');
    return [part.slice(0, at), part.slice(at + 1)];
  });
  const env = Object.fromEntries(variables.filter(([name]) => name !== '' && !NOT_PASSED_ON.has(name)));
  return { text, env };
}

import { basename, dirname, join } from 'node:path';
import type { StdioTarget } from '../../../config/values/upstream-config.ts';
import type { Launch, PrinterOutput } from './printed-launch.ts';

/** A run of `uvx` with the printer in place of the server. */
export interface PrinterRun {
  /** Arguments of `uvx` that make it run the printer instead of the server. */
  readonly args: readonly string[];
  readonly serverArgs: readonly string[];
}

/** Options of uv with a value that only affect the choice of packages. */
const WITH_VALUE = new Set(
  `--from --with -w --python -p --prerelease
   --index --default-index --index-url -i --extra-index-url`.split(/\s+/),
);
const FLAGS = new Set(['--offline', '--quiet', '-q', '--no-progress']);

/** Variables with which uv removes the environment of the server when uv ends. */
const TEMPORARY = ['UV_NO_CACHE', 'UV_ISOLATED'];

/** Matches a package, with or without a version, whose program has the same name. `python` would mean the interpreter. */
const PACKAGE = /^(?!python[\d.]*(?:@|$))([A-Za-z0-9][A-Za-z0-9._-]*)(?:@[A-Za-z0-9.+!-]+)?$/;
const PROGRAM = /^(?!python[\d.]*$)[A-Za-z0-9][A-Za-z0-9._-]*$/;

/**
 * Returns the printer for uvx. It runs in place of the server, whose name is its first argument, and prints the server's path and
 * environment. It fails unless the server is in uv's cache, or was installed by `uv tool install`.
 */
export const uvxPrinter = (begin: string, end: string): string => `#!/bin/sh
path=$(command -v -- "$1") && bin=$(dirname "$path") || exit 1
[ -e "$bin/../uv-receipt.toml" ] || { command -v flock >/dev/null && [ -e "$bin/../../../.lock" ]; } || exit 1
printf '%s\\0%s\\0' ${begin} "$path"
env -0
printf '%s\\0' ${end}
`;

/** Holds the lock on uv's cache as `uvx` does. Without it, `uv cache clean` would remove the server's files. An installed tool has no lock. */
const LOCKED_LAUNCH = '[ -e "$0" ] || exec "$@"; exec 9<"$0" && flock -s 9 && exec "$@"';

/** Returns the run with the printer; undefined for another program, or for arguments whose meaning is uncertain. */
export function printerRun(
  { command, args }: Pick<StdioTarget, 'command' | 'args'>,
  env: Readonly<Record<string, string>>,
  printer: string,
): PrinterRun | undefined {
  const verbs = verbCount(basename(command), args);
  if (verbs === undefined || TEMPORARY.some((name) => env[name] !== undefined)) return undefined;
  let at = verbs;
  let hasFrom = false;
  for (let arg = args[at]; arg?.startsWith('-') === true; arg = args[at]) {
    const [name = ''] = arg.split('=', 1);
    if (!FLAGS.has(arg) && !WITH_VALUE.has(name)) return undefined;
    hasFrom ||= name === '--from';
    at += WITH_VALUE.has(arg) ? 2 : 1;
  }
  const [server = '', ...serverArgs] = args.slice(at);
  const options = args.slice(0, at);
  if (hasFrom) return PROGRAM.test(server) ? { args: [...options, printer, server], serverArgs } : undefined;
  const [, program] = PACKAGE.exec(server) ?? [];
  return program === undefined ? undefined : { args: [...options, '--from', server, printer, program], serverArgs };
}

/** Returns whether the command is `uvx` or `uv tool run`. */
export function isUvx({ command, args }: Pick<StdioTarget, 'command' | 'args'>): boolean {
  return verbCount(basename(command), args) !== undefined;
}

/** Returns the number of arguments before the options of `uvx …` or `uv tool run …`; undefined for another program. */
function verbCount(program: string, [first, second]: readonly string[]): number | undefined {
  if (program === 'uvx') return 0;
  return program === 'uv' && first === 'tool' && second === 'run' ? 2 : undefined;
}

export function uvxLaunch({ text: path, env }: PrinterOutput, serverArgs: readonly string[]): Launch {
  const lock = join(dirname(path), '../../../.lock');
  return { command: '/bin/sh', args: ['-c', LOCKED_LAUNCH, lock, path, ...serverArgs], env, cwd: env['PWD'] };
}

import { basename, dirname, join } from 'node:path';
import type { StdioTarget } from '../../config/config.ts';
import type { Launch, Printed } from './printed-launch.ts';

/** A `uvx` that is asked which file it would run. */
export interface UvxQuestion {
  /** Arguments of `uvx` that make it run the printer instead of the server. */
  readonly args: readonly string[];
  /** Arguments of the server. */
  readonly serverArgs: readonly string[];
}

/** Options of uv that change nothing but which packages are run, and take a value. */
const WITH_VALUE = new Set([
  '--from',
  '--with',
  '-w',
  '--python',
  '-p',
  '--index',
  '--default-index',
  '--index-url',
  '-i',
  '--extra-index-url',
  '--prerelease',
]);
const FLAGS = new Set(['--offline', '--quiet', '-q', '--no-progress']);

/** With these uv removes the environment of the server when it ends. */
const TEMPORARY = ['UV_NO_CACHE', 'UV_ISOLATED'];

/** A package that has a program of its name, with or without a version. `python` means the interpreter. */
const PACKAGE = /^(?!python[\d.]*(?:@|$))([A-Za-z0-9][A-Za-z0-9._-]*)(?:@[A-Za-z0-9.+!-]+)?$/;
const PROGRAM = /^(?!python[\d.]*$)[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** Runs in place of the server, with its name as the first argument. Prints its path and environment, in uv's cache alone. */
export const PRINTING_PROGRAM = (begin: string, end: string): string => `#!/bin/sh
path=$(command -v -- "$1") && command -v flock >/dev/null && [ -e "$(dirname "$path")/../../../.lock" ] || exit 1
printf '%s\\0%s\\0' ${begin} "$path"
env -0
printf '%s\\0' ${end}
`;

/** Keeps the lock on uv's cache that `uvx` would hold: without it `uv cache clean` takes the server's files away. */
const LAUNCH = 'exec 9<"$0" && flock -s 9 && exec "$@"';

/** Returns undefined for another program, and for arguments of which it is not known for sure what they mean. */
export function uvxQuestion(
  { command, args }: Pick<StdioTarget, 'command' | 'args'>,
  env: Readonly<Record<string, string>>,
  printer: string,
): UvxQuestion | undefined {
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

/** Whether it may be a `uvx` that can be asked. */
export function isUvx({ command, args }: Pick<StdioTarget, 'command' | 'args'>): boolean {
  return verbCount(basename(command), args) !== undefined;
}

/** Returns how many arguments come before the options: `uvx …`, or `uv tool run …`. */
function verbCount(program: string, [first, second]: readonly string[]): number | undefined {
  if (program === 'uvx') return 0;
  return program === 'uv' && first === 'tool' && second === 'run' ? 2 : undefined;
}

/** Returns how to start the server that the printer found. */
export function uvxLaunch({ text: path, env }: Printed, serverArgs: readonly string[]): Launch {
  const lock = join(dirname(path), '../../../.lock');
  return { command: '/bin/sh', args: ['-c', LAUNCH, lock, path, ...serverArgs], env, cwd: env['PWD'] };
}

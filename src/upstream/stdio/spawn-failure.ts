import { systemCode } from '../../thrown.ts';
import { constants } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname, resolve } from 'node:path';
import type { StdioTarget } from '../../config/values/upstream-config.ts';
import { GatewayError } from '../../errors.ts';
import { firstFile, isAllowed, programCandidates, programFile } from './launch/program-file.ts';

/** The product that installs a launcher. */
const INSTALLED_WITH = new Map([
  ['npx', 'Node.js'],
  ['npm', 'Node.js'],
  ['node', 'Node.js'],
  ['uvx', 'uv'],
  ['uv', 'uv'],
  ['docker', 'Docker'],
]);

/** Error codes of failures that only a change of the config or the machine can fix. */
const PERMANENT = new Set(['ENOENT', 'EACCES', 'ENOTDIR', 'E2BIG', 'ENOEXEC', 'ERR_INVALID_ARG_VALUE']);

/** Words for what the system lacks to start any program. */
const LACKS: ReadonlyMap<string, string> = new Map([
  ['EAGAIN', 'there is no room for another process (ulimit -u, or the pids limit of the container)'],
  ['EMFILE', 'the gateway has too many open files (ulimit -n)'],
  ['ENFILE', 'the machine has too many open files'],
  ['ENOMEM', 'there is not enough memory'],
]);

/** Returns whether the reason of a failed start is that the system lacks something that all programs need. */
export function isExhaustion(reason: string): boolean {
  return LACKS.values().some((words) => reason.includes(words));
}

/** The cause of a program that could not be started. The message is for operators. */
export class ProgramError extends Error {
  override readonly name = 'ProgramError';
}

interface Cause {
  /** For clients: without paths and values of variables. */
  readonly message: string;
  /** For operators. */
  readonly note: string;
}

/**
 * Resolves with the error for a process that could not be started. Finds the cause, because the system reports a missing command,
 * a missing working directory and a missing interpreter with the same code, ENOENT.
 *
 * @param thrown the error that `spawn` threw or emitted.
 * @param env the environment for the process; its PATH was searched.
 * @returns `upstream-unavailable` (executed `no`). The message of its cause has the paths, for operators only.
 */
export async function spawnFailure(
  upstream: string,
  target: StdioTarget,
  env: Readonly<Record<string, string>>,
  thrown: unknown,
): Promise<GatewayError> {
  const code = systemCode(thrown) ?? 'unknown error';
  const { message, note } = await findCause(code, target, env['PATH'] ?? '');
  const detail = { upstream, message, executed: 'no' as const, retryable: !PERMANENT.has(code) };
  return new GatewayError('upstream-unavailable', detail, new ProgramError(note));
}

async function findCause(code: string, target: StdioTarget, path: string): Promise<Cause> {
  const { command, cwd } = target;
  // Clients read the name, and further words may be secrets.
  const [first = command] = command.trim().split(/\s/, 1);
  const name = basename(first);
  if (code !== 'ENOENT' && code !== 'EACCES' && code !== 'ENOTDIR') {
    const lack = LACKS.get(code);
    const why = lack === undefined ? '' : `: ${lack}`;
    return {
      message: `command "${name}" could not be started (${code})${why}`,
      note: `could not start ${first}: ${code}`,
    };
  }
  if (cwd !== undefined && !(await isDirectory(cwd))) {
    const message = `the working directory of command "${name}" does not exist or is no directory`;
    return { message, note: `cwd: ${resolve(cwd)}` };
  }
  if (cwd !== undefined && !(await isAllowed(cwd, constants.X_OK))) {
    const message = `the working directory of command "${name}" may not be entered`;
    return { message, note: `cwd: ${resolve(cwd)}` };
  }

  const candidates = programCandidates(command, cwd, path);
  const found = await firstFile(candidates);
  if (found === undefined) return await missing(first, target, candidates, path);
  if (!(await isAllowed(found, constants.X_OK))) {
    return { message: `command "${name}" may not be executed`, note: `${found} is not executable for us` };
  }
  const message = `command "${name}" needs an interpreter that was not found`;
  return { message, note: `the interpreter that ${found} asks for was not found (${code})` };
}

/** Returns the cause of a command that is no file. @param first its first word. */
async function missing(
  first: string,
  { command, cwd }: StdioTarget,
  candidates: readonly string[],
  path: string,
): Promise<Cause> {
  const name = basename(first);
  const trimmed = command.trim();
  const hasWords = first !== trimmed;
  if (trimmed !== command && (!hasWords || (await programFile(trimmed, cwd, path)) !== undefined)) {
    return { message: `command "${name}" has spaces around it; remove them`, note: 'spaces are part of its name' };
  }
  if (hasWords && (await programFile(first, cwd, path)) !== undefined) {
    const message = `command "${name}" has arguments in its text; they belong in "args"`;
    return { message, note: `write command: ${first}, and each argument as an item of the list args` };
  }
  if (command.includes('/')) {
    const [file = command] = candidates;
    return (await isDirectory(file))
      ? { message: `command "${name}" is a folder; give the path of a program in it`, note: `${file} is a folder` }
      : { message: `command "${name}" was not found`, note: `there is no file ${hasWords ? first : file}` };
  }
  const words = hasWords ? 'its arguments belong in "args"; ' : '';
  const advice = `${words}${installAdvice(name)}give the full path of the command, or set PATH in its "env"`;
  const folders = new Set(candidates.map((candidate) => dirname(candidate)));
  return {
    message: `command "${name}" was not found; ${advice}`,
    note: `searched PATH: ${[...folders].join(', ') || '(empty)'}`,
  };
}

function installAdvice(name: string): string {
  const origin = INSTALLED_WITH.get(name);
  return origin === undefined ? '' : `install ${origin}, which brings it, `;
}

export async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

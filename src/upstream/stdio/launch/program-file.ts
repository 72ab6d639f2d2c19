import { constants } from 'node:fs';
import { isFulfilled } from '../../../thrown.ts';
import { access, stat } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';

/** The places where the file of a command is looked for, in this order: the path itself, or the folders of PATH. */
export function programCandidates(command: string, cwd: string | undefined, path: string): readonly string[] {
  if (command.includes('/')) return [resolve(cwd ?? '.', command)];
  return path
    .split(delimiter)
    .filter((folder) => folder !== '')
    .map((folder) => resolve(folder, command));
}

/** Resolves with the first of these paths that is a file; undefined if none is. */
export async function firstFile(candidates: readonly string[]): Promise<string | undefined> {
  for (const candidate of candidates) {
    const isFile = await stat(candidate).then(
      (found) => found.isFile(),
      () => false,
    );
    if (isFile) return candidate;
  }
  return undefined;
}

/** Resolves with whether the system allows this access: constants of `node:fs`, such as `X_OK`. */
export function isAllowed(path: string, mode: number): Promise<boolean> {
  return isFulfilled(access(path, mode));
}

/** Resolves with the path of the program that a command would run; undefined if there is none that may be executed. */
export async function programFile(command: string, cwd: string | undefined, path: string): Promise<string | undefined> {
  const found = await firstFile(programCandidates(command, cwd, path));
  return found !== undefined && (await isAllowed(found, constants.X_OK)) ? found : undefined;
}

import { userInfo } from 'node:os';
import { basename, dirname, resolve, sep } from 'node:path';

import { LIMITS } from '../../limits.ts';
import { resultOrError } from '../../thrown.ts';
import type { ConfigFiles } from '../files/config-files.ts';
import { fileProblemText } from '../files/ordinary-file.ts';
import type { Expansion, Lookup } from './interpolate.ts';

/** Directories inside a project in which clients keep their file. The project is the parent directory. */
const CLIENT_FOLDERS = new Set(['.vscode', '.cursor', '.roo', '.gemini', '.codex', '.zed', '.continue']);

/** Resolves the relative paths and the `${…}` of one file. */
export interface Places extends Lookup {
  readonly home: string;
  /** Returns the absolute path for a path that is relative to the config file or to `~`. */
  resolve(path: string): string;
  /** Expands `~` at the beginning of a path: `~/bin/x` → `/home/me/bin/x`. */
  untilde(path: string): string;
  /** Returns the text of a file of variables, or a clause that says why there is none. Its relative path is resolved. */
  envFile(path: string): Expansion;
  /** The absolute paths of the files that were asked for, those included that could not be read. */
  readonly files: ReadonlySet<string>;
  /** The texts that `envFile` has returned, by absolute path. */
  readonly envFiles: ReadonlyMap<string, string>;
}

/** Returns the home directory of this user: `HOME`, else that of the table of users. Who is not in it has `/`, as in containers. */
export function homeOf({ HOME = '' }: NodeJS.ProcessEnv): string {
  if (HOME !== '') return HOME;
  const found = resultOrError(Error, () => userInfo().homedir);
  return found instanceof Error ? '/' : found;
}

/**
 * Returns the places of a config file.
 *
 * @param file its absolute path.
 * @param files the files that its `${file:…}` and `envFile` are read from.
 * @param copies texts of files of variables by absolute path, which are used instead of the files.
 */
export function places(
  file: string,
  env: NodeJS.ProcessEnv,
  files: ConfigFiles,
  copies: Readonly<Record<string, string>> = {},
): Places {
  const folder = dirname(file);
  const workspace = CLIENT_FOLDERS.has(basename(folder)) ? dirname(folder) : folder;
  const home = homeOf(env);
  const named: ReadonlyMap<string, string> = new Map([
    ['workspaceFolder', workspace],
    ['workspaceFolderBasename', basename(workspace)],
    ['userHome', home],
    ['pathSeparator', sep],
    ['/', sep],
  ]);
  const untilde = (path: string): string => (path === '~' || path.startsWith('~/') ? home + path.slice(1) : path);
  const absolute = (path: string): string => resolve(folder, untilde(path));
  const asked = new Set<string>();
  const envFiles = new Map<string, string>();
  /** Returns the absolute path of a file that is about to be read. */
  const recorded = (path: string): string => {
    const file = absolute(path);
    asked.add(file);
    return file;
  };
  const textOf = (path: string, limitBytes: number): Expansion => {
    const found = files.get(path, limitBytes);
    return found.kind === 'found' ? { text: found.bytes.toString('utf8') } : { problem: fileProblemText(found) };
  };
  return {
    home,
    variable: (name) => env[name],
    place: (name) => named.get(name),
    file: (path) => textOf(recorded(path), LIMITS.configValueBytes),
    envFile: (path) => {
      const file = recorded(path);
      const copy = Object.hasOwn(copies, file) ? copies[file] : undefined;
      const read = copy === undefined ? textOf(file, LIMITS.configEnvFileBytes) : { text: copy };
      if ('text' in read) envFiles.set(file, read.text);
      return read;
    },
    files: asked,
    envFiles,
    resolve: absolute,
    untilde,
  };
}

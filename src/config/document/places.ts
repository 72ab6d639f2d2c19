import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, resolve, sep } from 'node:path';

import type { Lookup } from './interpolate.ts';

/** Directories inside a project in which clients keep their file. The project is the parent directory. */
const CLIENT_FOLDERS = new Set(['.vscode', '.cursor', '.roo', '.gemini', '.codex', '.zed', '.continue']);

const FILE_LIMIT_BYTES = 65_536;

/** Resolves the relative paths and the `${…}` of one file. */
export interface Places extends Lookup {
  readonly home: string;
  /** Returns the absolute path for a path that is relative to the config file or to `~`. */
  resolve(path: string): string;
  /** Expands `~` at the beginning of a path: `~/bin/x` → `/home/me/bin/x`. */
  untilde(path: string): string;
  /** Returns the text of a file of variables. Its relative path is resolved. @throws if it cannot be read. */
  envFile(path: string): string;
  /** The absolute paths of the files that were asked for, those included that could not be read. */
  readonly files: ReadonlySet<string>;
  /** The texts that `envFile` has returned, by absolute path. */
  readonly envFiles: ReadonlyMap<string, string>;
}

/**
 * Returns the places of a config file.
 *
 * @param file its absolute path.
 * @param copies texts of files of variables by absolute path, which are used instead of the files.
 */
export function places(file: string, env: NodeJS.ProcessEnv, copies: Readonly<Record<string, string>> = {}): Places {
  const folder = dirname(file);
  const workspace = CLIENT_FOLDERS.has(basename(folder)) ? dirname(folder) : folder;
  const home = env['HOME'] ?? homedir();
  const named: ReadonlyMap<string, string> = new Map([
    ['workspaceFolder', workspace],
    ['workspaceFolderBasename', basename(workspace)],
    ['userHome', home],
    ['pathSeparator', sep],
    ['/', sep],
  ]);
  const untilde = (path: string): string => (path === '~' || path.startsWith('~/') ? home + path.slice(1) : path);
  const absolute = (path: string): string => resolve(folder, untilde(path));
  const files = new Set<string>();
  const envFiles = new Map<string, string>();
  /** Returns the absolute path of a file that is about to be read. */
  const recorded = (path: string): string => {
    const file = absolute(path);
    files.add(file);
    return file;
  };
  return {
    home,
    variable: (name) => env[name],
    place: (name) => named.get(name),
    file: (path) => readText(recorded(path)),
    envFile: (path) => {
      const file = recorded(path);
      const text = (Object.hasOwn(copies, file) ? copies[file] : undefined) ?? readFileSync(file, 'utf8');
      envFiles.set(file, text);
      return text;
    },
    files,
    envFiles,
    resolve: absolute,
    untilde,
  };
}

/** Returns the text of a small file, or undefined if it cannot be read. */
function readText(path: string): string | undefined {
  try {
    const bytes = readFileSync(path);
    return bytes.length > FILE_LIMIT_BYTES ? undefined : bytes.toString('utf8');
  } catch (thrown) {
    // The message names the file; the operator can find the cause on this machine.
    if (thrown instanceof Error && 'code' in thrown) return undefined;
    throw thrown;
  }
}

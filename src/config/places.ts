import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, resolve, sep } from 'node:path';

import type { Lookup } from './interpolate.ts';

/** Directories in which clients keep their file inside a project; the project is the one above. */
const CLIENT_FOLDERS = new Set(['.vscode', '.cursor', '.roo', '.gemini', '.codex', '.zed', '.continue']);

const FILE_LIMIT_BYTES = 65_536;

/** Where relative paths start, and what the texts of one file may refer to. */
export interface Places extends Lookup {
  readonly home: string;
  /** An absolute path, from one relative to the config file or to `~`. */
  resolve(path: string): string;
  /** `~/bin/x` → `/home/me/bin/x`; other paths stay what they are. */
  untilde(path: string): string;
}

/** @param file the config file; absolute. */
export function places(file: string, env: NodeJS.ProcessEnv): Places {
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
  return {
    home,
    variable: (name) => env[name],
    place: (name) => named.get(name),
    file: (path) => readText(absolute(path)),
    resolve: absolute,
    untilde,
  };
}

/** A small text file, or undefined where there is none that can be read. */
function readText(path: string): string | undefined {
  try {
    const bytes = readFileSync(path);
    return bytes.length > FILE_LIMIT_BYTES ? undefined : bytes.toString('utf8');
  } catch (thrown) {
    // Why is the operator's business on the machine; the message names the file, and that says enough.
    if (thrown instanceof Error && 'code' in thrown) return undefined;
    throw thrown;
  }
}

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';

/** Outlives `npm ci`. */
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'linkspan-programs', 'nodes');
const INSTALL_MS = 120_000;

const exec = promisify(execFile);

/**
 * Returns the environment with this Node in front of `PATH`, as in the shell of a user: without the settings of an
 * `npm test` around this process, and without the programs of our own `node_modules`.
 */
export function environmentOn(nodeFolder: string, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && !/^npm_|^NODE_(?:TEST_CONTEXT|OPTIONS)$|^INIT_CWD$/.test(name)) env[name] = value;
  }
  const folders = (env['PATH'] ?? '').split(delimiter).filter((folder) => !folder.includes('node_modules'));
  return { ...env, PATH: [nodeFolder, ...folders].join(delimiter), ...more };
}

/** Returns the folder of the `node` program of this version, from npm, kept in the cache of the user. */
export async function nodeFolder(version: string): Promise<string> {
  if (version === process.versions.node) return dirname(process.execPath);
  const name = `node-linux-${process.arch}`;
  const folder = join(CACHE, version);
  const bin = join(folder, 'node_modules', name, 'bin');
  if (existsSync(join(bin, 'node'))) return bin;
  // Installed in another folder and then moved, so that an interrupted installation leaves nothing incomplete.
  const making = `${folder}.${process.pid}`;
  await mkdir(making, { recursive: true });
  const args = ['install', '--prefix', making, '--no-save', '--no-audit', '--no-fund', `${name}@${version}`];
  await exec('npm', args, { timeout: INSTALL_MS, env: environmentOn(dirname(process.execPath)) });
  await rm(folder, { recursive: true, force: true });
  await rename(making, folder);
  return bin;
}

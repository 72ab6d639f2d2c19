import { existsSync, statSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { scriptFolders } from '../command-name.ts';
import { ConfigError, problemOfWhole } from './document/problem.ts';

/** The places below the current directory where a config file is looked for, in this order. */
const CONFIG_FILES = [
  'linkspan.yaml',
  'linkspan.yml',
  'linkspan.json',
  'linkspan.toml',
  'config/linkspan.yaml',
  'config/linkspan.yml',
  'config/linkspan.json',
  'config/linkspan.toml',
] as const;

/**
 * Returns the config file below a directory, else below the checkout whose script runs; undefined if there is none.
 *
 * @param env may name it in `LINKSPAN_CONFIG`.
 */
export function findConfigFile(cwd: string, env: NodeJS.ProcessEnv): string | undefined {
  const named = env['LINKSPAN_CONFIG'];
  if (named !== undefined && named !== '') return named;
  const checkout = scriptFolders(env)?.checkout;
  const dirs = checkout === undefined ? [cwd] : [cwd, checkout];
  return dirs.flatMap((dir) => CONFIG_FILES.map((name) => join(dir, name))).find((path) => existsSync(path));
}

/** The message about `--config ""`, as of a variable that is not set. */
export const EMPTY_OPTION = '--config: its value is empty; name a file, or leave the option out';

const ANY_CLIENT = 'the file of any MCP client works too';

/** Returns the config file that the caller named, or the one that is found. @throws {ConfigError} if there is none. */
export function configFile(named: string | undefined, cwd: string, env: NodeJS.ProcessEnv): string {
  const file = named ?? findConfigFile(cwd, env);
  if (file === undefined) {
    const step = `Name one with --config or LINKSPAN_CONFIG; ${ANY_CLIENT}`;
    throw noFile('', `no config file in ${cwd}; looked for ${CONFIG_FILES.join(', ')}. ${step}`);
  }
  if (file === '') throw noFile('', EMPTY_OPTION);
  const path = resolve(cwd, file);
  if (isMissing(path)) {
    const where = isAbsolute(file) ? '' : ` in ${dirname(path)}`;
    throw noFile(
      file,
      `no such file${where}. Check ${named === undefined ? 'LINKSPAN_CONFIG' : 'the path'}; ${ANY_CLIENT}`,
    );
  }
  return file;
}

function noFile(file: string, message: string): ConfigError {
  return new ConfigError([problemOfWhole(file, message)]);
}

/** Returns whether there is certainly nothing at a path. */
export function isMissing(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    // A reader of the path reports the reason.
    return false;
  }
}

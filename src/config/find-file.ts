import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { scriptFolders } from '../command-name.ts';
import { ConfigError } from './document/problem.ts';

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

/** Returns the config file that the caller named, or the one that is found. @throws {ConfigError} if there is none. */
export function configFile(named: string | undefined, cwd: string, env: NodeJS.ProcessEnv): string {
  const file = named ?? findConfigFile(cwd, env);
  if (file !== undefined && file !== '') return file;
  const message =
    file === ''
      ? '--config: its value is empty; name a file, or leave the option out'
      : `no config file in ${cwd}; looked for ${CONFIG_FILES.join(', ')}. ` +
        'Name one with --config or LINKSPAN_CONFIG; the file of any MCP client works too';
  throw new ConfigError([{ file: '', line: 0, column: 0, key: '', message }]);
}

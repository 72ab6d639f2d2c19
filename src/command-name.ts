import { dirname } from 'node:path';

/** The scripts of our package.json that run a command of ours. */
const SCRIPTS = ['start', 'linkspan'];

/** Returns the words before a command, as a person has to write them: a checkout has no program `linkspan`, but a script of npm. */
export function commandName(env: NodeJS.ProcessEnv): string {
  const isScript = env['npm_package_name'] === 'linkspan' && SCRIPTS.includes(env['npm_lifecycle_event'] ?? '');
  return isScript ? 'npm run -s linkspan --' : 'linkspan';
}

/** Folders of a command that the script `linkspan` of a checkout runs. */
export interface ScriptFolders {
  /** The folder of the person who has called npm, by which relative paths are meant. npm runs scripts in the folder of the package. */
  readonly caller: string;
  readonly checkout: string;
}

/** Returns the folders of the script that runs this command; undefined if it is run in another way. */
export function scriptFolders(env: NodeJS.ProcessEnv): ScriptFolders | undefined {
  const { INIT_CWD: caller, npm_package_json: file } = env;
  const isOurs = env['npm_package_name'] === 'linkspan' && env['npm_lifecycle_event'] === 'linkspan';
  return isOurs && caller !== undefined && file !== undefined ? { caller, checkout: dirname(file) } : undefined;
}

/** The options of "run", without those that npm has too. Those with a value end with `…`. */
const OPTIONS = ['config …', 'listen …', 'operator …', 'project …', 'log-format …', 'last-good', 'warm', 'first-key'];

/** How each script is called. */
const CALLS = new Map([
  ['start', 'npm start --'],
  ['linkspan', 'npm run -s linkspan -- <command>'],
  ['validate', 'npm run validate --'],
]);

/**
 * Returns the reason why this command lacks options that a person has written: npm keeps those without `--` before them, as in
 * `npm start --listen=127.0.0.1:8080`. Undefined if there are none.
 */
export function optionsKeptByNpm(env: NodeJS.ProcessEnv): string | undefined {
  const call = env['npm_package_name'] === 'linkspan' ? CALLS.get(env['npm_lifecycle_event'] ?? '') : undefined;
  if (call === undefined) return undefined;
  const kept = OPTIONS.filter((option) => {
    const [name = ''] = option.split(' ', 1);
    return env[`npm_config_${name.replaceAll('-', '_')}`] !== undefined;
  }).map((option) => `--${option}`);
  if (kept.length === 0) return undefined;
  const names = kept.map((option) => option.replace(' …', '')).join(' and ');
  return `npm has kept ${names} for itself; write "--" before ${kept.length === 1 ? 'it' : 'them'}: ${call} ${kept.join(' ')}`;
}

/** The words before a command in the texts of this process. */
export const COMMAND = commandName(process.env);

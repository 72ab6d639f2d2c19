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

/** The words before a command in the texts of this process. */
export const COMMAND = commandName(process.env);

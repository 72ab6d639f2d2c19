/** The scripts of our package.json that run a command of ours. */
const SCRIPTS = ['start', 'linkspan'];

/** Returns the words before a command, as a person has to write them: a checkout has no program `linkspan`, but a script of npm. */
export function commandName(env: NodeJS.ProcessEnv): string {
  const isScript = env['npm_package_name'] === 'linkspan' && SCRIPTS.includes(env['npm_lifecycle_event'] ?? '');
  return isScript ? 'npm run -s linkspan --' : 'linkspan';
}

/** The words before a command in the texts of this process. */
export const COMMAND = commandName(process.env);

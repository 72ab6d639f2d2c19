import { createHash } from 'node:crypto';
import { isAbsolute, join, resolve } from 'node:path';
import { expand } from './document/interpolate.ts';
import { ConfigFiles, configLimitBytes } from './files/config-files.ts';
import { type Places, places } from './document/places.ts';
import { ConfigError } from './document/problem.ts';
import { valueAt } from './document/expanded.ts';
import { parseFile } from './parse-file.ts';
import { resultOrError } from '../thrown.ts';

/**
 * Returns the default state directory. Each config file has its own, so that two gateways of one user share no state.
 *
 * @param file absolute path of the config file.
 */
export function defaultStateDir(file: string, where: Pick<Places, 'variable' | 'home'>): string {
  return join(stateRoot(where), createHash('sha256').update(file).digest('hex').slice(0, 12));
}

/** Returns the directory in which every gateway of this user has its default state directory. */
export function stateRoot({ variable, home }: Pick<Places, 'variable' | 'home'>): string {
  const base = variable('XDG_STATE_HOME');
  const root = base !== undefined && isAbsolute(base) ? base : join(home, '.local', 'state');
  return join(root, 'linkspan');
}

/**
 * Returns the state directory of a config file without checking the rest of the file. So a running gateway is found although its file has
 * been broken since. In a file that cannot be parsed at all, the setting is looked for as text.
 */
export async function stateDirOf(file: string, env: NodeJS.ProcessEnv): Promise<string> {
  const absolute = resolve(file);
  const files = new ConfigFiles();
  const where = places(absolute, env, files);
  const expanded = await files.build(() => {
    const given = settingIn(absolute, files);
    return given === undefined ? undefined : expand(given, where, 'plain');
  });
  return expanded === undefined || 'problem' in expanded
    ? defaultStateDir(absolute, where)
    : where.resolve(expanded.text);
}

/**
 * Returns the directories in which the commands look for the gateway of a config file, the one that the file names first. The
 * default one is found whatever the file says, so that a running gateway writes its address there too.
 */
export async function gatewayDirsOf(file: string, env: NodeJS.ProcessEnv): Promise<readonly string[]> {
  const absolute = resolve(file);
  return [
    ...new Set([await stateDirOf(file, env), defaultStateDir(absolute, places(absolute, env, new ConfigFiles()))]),
  ];
}

function settingIn(file: string, files: ConfigFiles): string | undefined {
  const found = files.get(file, configLimitBytes(file));
  if (found.kind !== 'found') return undefined;
  const text = found.bytes.toString('utf8');
  const document = resultOrError(ConfigError, () => parseFile(file, text));
  if (document instanceof ConfigError) return settingInText(text);
  const value = valueAt(document.data, ['gateway', 'stateDir']);
  return typeof value === 'string' ? value : undefined;
}

/** The setting with its value: quoted, or bare to the end of the line or of the map. */
const SETTING = /(?:^|[{,])\s*["']?stateDir["']?\s*[:=]\s*(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'#,{}[\]][^\n#,}]*))/m;

function settingInText(text: string): string | undefined {
  const [, double, single, bare] = SETTING.exec(text) ?? [];
  return double ?? single ?? bare?.trim();
}

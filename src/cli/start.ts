import { resolve } from 'node:path';
import { isatty } from 'node:tty';

import { isLoopback } from '../config/schema/address.ts';
import type { AccessLog, Config } from '../config/values/config.ts';
import { configFile } from '../config/find-file.ts';
import { printError } from './operator/output.ts';
import { type KeptUpstreams, loadOrLastGood } from '../config/last-good.ts';
import { type Loaded, type LoadOptions, loadConfig } from '../config/load.ts';
import { stateDirOf } from '../config/state-dir.ts';
import { firstKeyHash, keptFirstKeyHash } from '../store/disk/first-key.ts';
import { readLastGood } from '../store/disk/last-good-file.ts';
import { createLogger, type LogFormat, type Logger } from '../telemetry/log.ts';
import { messageOf } from '../thrown.ts';

/** The command-line options of commands that load a config. */
export interface StartOptions {
  /** Default: found by itself; see {@link configFile}. */
  readonly config?: string;
  readonly listen?: string;
  readonly operator?: string;
  readonly project?: string;
  readonly logFormat?: LogFormat;
  /** Makes an API key at the first start of a config without authentication. */
  readonly firstKey?: boolean;
  /** Starts a broken file with the upstreams of the last good one. */
  readonly lastGood?: boolean;
}

/** A loaded config, and a log with its settings. */
export interface StartedCommand {
  readonly config: Config;
  readonly loaded: Loaded;
  readonly log: Logger;
  /** Loads the file again. @throws {ConfigError} */
  readonly load: () => Promise<Loaded>;
  /** Loads the file without making a first key. @throws {ConfigError} */
  readonly preview: () => Promise<Loaded>;
}

/** The options for loading a config, by the purpose. */
interface LoadPurposes {
  /** To serve it. Makes the first key if `--first-key` asks for one. */
  readonly use: LoadOptions;
  /** To show it. Changes nothing. */
  readonly preview: LoadOptions;
}

const STDERR = 2;
/** Stands for the hash of a key that this load does not make. No key has it. */
const NO_KEY_YET = '0'.repeat(64);

/** Returns the options for loading the config. `LINKSPAN_FIRST_KEY=1` stands for `--first-key` in every command that loads it. */
export function loadOptions(
  { listen, operator, project, firstKey = false }: StartOptions,
  listens = true,
): LoadPurposes {
  const options = { env: process.env, listen, operator, project, listens };
  if (!firstKey && process.env['LINKSPAN_FIRST_KEY'] !== '1') return { use: options, preview: options };
  // A client without a port needs none, and the next start that opens one has to show it.
  const without = { ...options, firstKeyHash: () => NO_KEY_YET };
  if (!listens) return { use: without, preview: without };
  let keptIn: string | undefined;
  return {
    use: {
      ...options,
      firstKeyHash: ({
        stateDir,
        listen: { port },
        tls,
        publicUrl = `${tls === undefined ? 'http' : 'https'}://localhost:${port}`,
      }) => {
        // A reload changes the state directory at the next start only.
        keptIn ??= stateDir;
        return firstKeyHash(keptIn, (key, file) => printError(firstKeyText(key, file, `${publicUrl}/mcp`)));
      },
    },
    preview: {
      ...options,
      firstKeyHash: async ({ stateDir }) => (await keptFirstKeyHash(keptIn ?? stateDir)) ?? NO_KEY_YET,
    },
  };
}

/**
 * Loads the config, opens the log, and logs the warnings of the config.
 *
 * @throws {ConfigError} if the config file cannot be used.
 * @throws {StartError} if the first key cannot be kept.
 */
export async function start(verb: 'run' | 'stdio', options: StartOptions): Promise<StartedCommand> {
  const file = fileOf(options);
  // The problems of a reload are read in other folders, such as by `status`.
  const later = resolve(file);
  const how = loadOptions(options, verb === 'run');
  const load = () => loadConfig(later, how.use);
  const preview = () => loadConfig(later, how.preview);
  const loaded = await (options.lastGood === true ? startOrLastGood(file, how.use) : loadConfig(file, how.use));
  const { config, warnings } = loaded;
  const format = options.logFormat ?? (isatty(STDERR) ? 'pretty' : 'json');
  const log = createLogger(config.logLevel, undefined, { format, requests: requestLines(verb, format, config) });
  for (const warning of warnings) log.warn({ file: config.file }, warning);
  if (loaded.lastGood !== undefined) {
    log.error(
      { file: config.file, ...loaded.lastGood },
      'config is broken; the upstreams are those of the last good one',
    );
  }
  return { config, loaded, log, load, preview };
}

/** Loads the config, with the upstreams of the copy in its state directory if it is broken. @throws {ConfigError} */
async function startOrLastGood(file: string, how: LoadOptions): Promise<Loaded> {
  const kept = await keptUpstreams(file, how.env);
  return await loadOrLastGood((lastGood) => loadConfig(file, { ...how, lastGood }), kept);
}

/** Returns the upstreams of the last good version of a config file, from the state directory that the file names. */
async function keptUpstreams(file: string, env: NodeJS.ProcessEnv): Promise<KeptUpstreams> {
  const stateDir = await stateDirOf(file, env);
  try {
    const found = await readLastGood(stateDir);
    if (found?.file === resolve(file)) return found;
    const missing = `there is no last good version of this file in ${stateDir}; a start with --last-good keeps one`;
    return { missing };
  } catch (thrown) {
    return { missing: messageOf(thrown) };
  }
}

/** Loads the config of a command that only reads it. Changes nothing. @throws {ConfigError} */
export function loadForReading(options: StartOptions): Promise<Loaded> {
  return loadConfig(fileOf(options), loadOptions(options).preview);
}

/** Returns the config file: the one that the command line names, else the one that is found. @throws {ConfigError} */
export function fileOf({ config }: Pick<StartOptions, 'config'>): string {
  return configFile(config, process.cwd(), process.env);
}

/** Decides which requests get a log line. */
function requestLines(verb: 'run' | 'stdio', format: LogFormat, config: Config): Exclude<AccessLog, 'auto'> {
  if (config.accessLog !== 'auto') return config.accessLog;
  if (format === 'pretty') return 'none';
  const isLocal = isLoopback(config.listen.host) && config.publicUrl === undefined;
  return verb === 'stdio' || isLocal ? 'errors' : 'all';
}

/** Returns the text that shows the key to the person who starts the gateway. @param url of the merged endpoint. */
function firstKeyText(key: string, file: string, url: string): string {
  return [
    '',
    'No API key is configured, so this first start has made one. It is shown only now:',
    '',
    `    ${key}`,
    '',
    `    claude mcp add --transport http linkspan ${url} --header "Authorization: Bearer ${key}"`,
    '',
    `Its hash is in ${file}. To get another key, remove that file and start again.`,
    'To use keys of your own, configure gateway.auth.',
    '',
    '',
  ].join('\n');
}

import { readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { findConfigFile } from '../../config/find-file.ts';
import { stateDirOf, stateRoot } from '../../config/state-dir.ts';
import { type OperatorFile, readOperatorFile } from '../../store/disk/operator-file.ts';
import { CliError, EXIT } from './cli-error.ts';

/** The command-line options that choose a running gateway. */
export interface TargetOptions {
  /** The operator's port of a gateway; its key is in `LINKSPAN_OPERATOR_KEY`. */
  readonly url?: string;
  readonly stateDir?: string;
  readonly config?: string;
}

/** A running gateway. */
export interface Target {
  /** `http://host:port` of its operator's port. */
  readonly url: string;
  /** The key of the admin API; undefined if none is known. */
  readonly token: string | undefined;
  /** The file that names it; undefined if the caller did. */
  readonly file: OperatorFile | undefined;
}

/**
 * Finds the running gateway: the one that the options name, else the one of the config file that is found here, else the
 * only one of this user.
 *
 * @throws {CliError}
 */
export async function findGateway(options: TargetOptions, cwd: string, env: NodeJS.ProcessEnv): Promise<Target> {
  if (options.url !== undefined)
    return { url: originOf(options.url), token: env['LINKSPAN_OPERATOR_KEY'], file: undefined };
  if (options.stateDir !== undefined) return await inDirectory(options.stateDir, options.stateDir);
  const config = options.config ?? findConfigFile(cwd, env);
  if (config !== undefined) return await inDirectory(stateDirOf(config, env), config);
  return await onlyOne(stateRoot({ variable: (name) => env[name], home: env['HOME'] ?? homedir() }));
}

function originOf(text: string): string {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url === null) throw new CliError(EXIT.usage, `--url: expected host:port or a URL, got ${JSON.stringify(text)}`);
  return url.origin;
}

function toTarget(file: OperatorFile): Target {
  return { url: file.url, token: file.token, file };
}

async function inDirectory(stateDir: string, named: string): Promise<Target> {
  const file = await read(stateDir);
  if (file !== undefined) return toTarget(file);
  throw new CliError(
    EXIT.unreachable,
    `no gateway runs with ${named}: there is no operator.json in ${stateDir}. Start one with "linkspan run", or name one with --config, --state-dir or --url`,
  );
}

async function onlyOne(root: string): Promise<Target> {
  const names = await readdir(root).catch(() => []);
  const files = await Promise.all(names.map((name) => readOperatorFile(join(root, name)).catch(() => undefined)));
  const [file, ...others] = files.filter((one) => one !== undefined).filter((one) => isAlive(one.pid));
  if (file === undefined) {
    throw new CliError(
      EXIT.unreachable,
      'no running gateway was found. Start one with "linkspan run", or name one with --config, --state-dir or --url',
    );
  }
  if (others.length === 0) return toTarget(file);
  const configs = [file, ...others].map(({ configFile }) => configFile).join(', ');
  throw new CliError(EXIT.usage, `more than one gateway runs; choose one with --config: ${configs}`);
}

async function read(stateDir: string): Promise<OperatorFile | undefined> {
  try {
    return await readOperatorFile(stateDir);
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    throw new CliError(EXIT.unauthorized, message, thrown);
  }
}

/** Returns whether a process runs. One of another user counts. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (thrown) {
    return thrown instanceof Error && 'code' in thrown && thrown.code === 'EPERM';
  }
}

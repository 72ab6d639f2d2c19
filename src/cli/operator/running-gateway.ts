import { isCode, messageOf } from '../../thrown.ts';
import { COMMAND } from '../../command-name.ts';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { homeOf } from '../../config/document/places.ts';
import { portFault } from '../../config/schema/address.ts';
import { EMPTY_OPTION, findConfigFile, isMissing } from '../../config/find-file.ts';
import { gatewayDirsOf, stateRoot } from '../../config/state-dir.ts';
import { ADMIN_PATH } from '../../operator/admin/routes.ts';
import { type OperatorFile, readOperatorFile } from '../../store/disk/operator-file.ts';
import type { AllowedOwners } from '../../store/disk/own-file.ts';
import { CliError, EXIT } from './cli-error.ts';
import { askPort, isOk } from './operator-port.ts';

/** The command-line options that choose a running gateway. */
export interface TargetOptions {
  /** The operator's port of a gateway; its key is in `LINKSPAN_OPERATOR_KEY`. */
  readonly url?: string;
  readonly stateDir?: string;
  readonly config?: string;
}

export interface RunningGateway {
  /** `http://host:port` of its operator's port. */
  readonly url: string;
  /** The key of the admin API; undefined if none is known. */
  readonly token: string | undefined;
  /** The file that names it; undefined if the caller did. */
  readonly file: OperatorFile | undefined;
}

/** Returns the key in the environment. Files of secrets often end with a line break. */
function keyIn(env: NodeJS.ProcessEnv): string | undefined {
  const key = env['LINKSPAN_OPERATOR_KEY']?.trim();
  return key === '' ? undefined : key;
}

/** The state directories of the gateways that deploy/systemd/linkspan.service starts. Only root can have made it. */
const SERVICE_STATE_ROOT = '/var/lib/linkspan/linkspan';

/** The longest time for the answer of a gateway, if several may run. One that is slower counts as running. */
const PROBE_MS = 2000;

/**
 * Finds the running gateway: the one that the options name, else the one of the config file found here. Without both, it is the only one of
 * this user. For root, the gateways of the systemd unit count as its own.
 *
 * @param serviceRoot the state directories of the systemd unit.
 * @throws {CliError}
 */
export async function findGateway(
  options: TargetOptions,
  cwd = process.cwd(),
  env = process.env,
  serviceRoot = SERVICE_STATE_ROOT,
): Promise<RunningGateway> {
  if (options.url !== undefined) return { url: originOf(options.url), token: keyIn(env), file: undefined };
  if (options.stateDir !== undefined) return await inDirectories([options.stateDir], options.stateDir, 'any-for-root');
  if (options.config === '') throw new CliError(EXIT.usage, EMPTY_OPTION);
  if (options.config !== undefined)
    return await inDirectories(await gatewayDirsOf(options.config, env), options.config, 'any-for-root');
  const found = findConfigFile(cwd, env);
  // Another user may have left this file in the current directory of root, and names a state directory in it.
  if (found !== undefined) return await inDirectories(await gatewayDirsOf(found, env), found, 'self');
  const root = stateRoot({ variable: (name) => env[name], home: homeOf(env) });
  return await onlyOne(process.geteuid?.() === 0 && root !== serviceRoot ? [root, serviceRoot] : [root]);
}

function originOf(text: string): string {
  const written = text.includes('://') ? text : `http://${text}`;
  const url = URL.parse(written);
  if (url === null) {
    const expected = portFault(written) ?? 'expected host:port or a URL';
    throw new CliError(EXIT.usage, `--url: ${expected}, got ${JSON.stringify(text)}`);
  }
  return url.origin;
}

function toTarget(file: OperatorFile): RunningGateway {
  return { url: file.url, token: file.token, file };
}

async function inDirectories(dirs: readonly string[], named: string, owners: AllowedOwners): Promise<RunningGateway> {
  for (const dir of dirs) {
    const file = await read(dir, owners);
    if (file !== undefined) return toTarget(file);
  }
  throw new CliError(
    EXIT.unreachable,
    `no gateway runs with ${named}${isMissing(named) ? ', which does not exist' : ''}: there is no operator.json in ${dirs.join(' or ')}. Start one with "${COMMAND} run", or name one with --config, --state-dir or --url`,
  );
}

async function onlyOne(roots: readonly string[]): Promise<RunningGateway> {
  const dirs = (await Promise.all(roots.map(directoriesIn))).flat();
  const files = await Promise.all(dirs.map((dir) => readOperatorFile(dir, 'any-for-root').catch(() => undefined)));
  const alive = files.filter((one) => one !== undefined).filter((one) => isAlive(one.pid));
  // A gateway whose state directory is here too has two files.
  const [file, ...others] = await onlyRunning([...new Map(alive.map((one) => [one.token, one])).values()]);
  if (file === undefined) {
    throw new CliError(
      EXIT.unreachable,
      `no running gateway was found. Start one with "${COMMAND} run", or name one with --config, --state-dir or --url`,
    );
  }
  if (others.length === 0) return toTarget(file);
  const configs = [file, ...others].map(({ configFile }) => configFile).join(', ');
  throw new CliError(EXIT.usage, `more than one gateway runs; choose one with --config: ${configs}`);
}

async function directoriesIn(root: string): Promise<readonly string[]> {
  const names = await readdir(root).catch(() => []);
  return names.map((name) => join(root, name));
}

async function read(stateDir: string, owners: AllowedOwners): Promise<OperatorFile | undefined> {
  try {
    return await readOperatorFile(stateDir, owners);
  } catch (thrown) {
    const message = messageOf(thrown);
    throw new CliError(EXIT.unauthorized, message, thrown);
  }
}

/** Returns the files of gateways that run. One file is left as it is, so that a failure of its gateway has a message. */
async function onlyRunning(files: readonly OperatorFile[]): Promise<readonly OperatorFile[]> {
  if (files.length < 2) return files;
  const answers = await Promise.all(files.map(mayRun));
  return files.filter((_, index) => answers[index]);
}

/** Returns whether the gateway of a file may run. After a kill, another program may have its process number, and another gateway its port. */
async function mayRun({ url, token }: OperatorFile): Promise<boolean> {
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const answer = await askPort(`${url}${ADMIN_PATH}/status`, { headers, signal: AbortSignal.timeout(PROBE_MS) });
    answer.body.destroy();
    return isOk(answer) || answer.status >= 500;
  } catch (thrown) {
    return !isCode(thrown, 'ECONNREFUSED');
  }
}

/** Returns whether a process runs. One of another user counts. */
function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (thrown) {
    return isCode(thrown, 'EPERM');
  }
}

import { execFile } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { basename, delimiter, dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import type { Sandbox } from '../../../config/values/upstream-config.ts';
import { GatewayError } from '../../../errors.ts';
import type { Launch } from './printed-launch.ts';
import { isFulfilled } from '../../../thrown.ts';
import { programFile } from './program-file.ts';
import { getOrMake } from '../../../map-entries.ts';

const run = promisify(execFile);

const PROBE = ['--unshare-user', '--disable-userns', '--ro-bind', '/', '/', '--', '/bin/true'];
const PROBE_MS = 10_000;

const probes = new Map<string, Promise<boolean>>();

/** Files that programs need to start and to use the network. Read-only; those that a system does not have are left out. */
const SYSTEM_PATHS = `/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store
   /etc/alternatives /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/localtime /etc/fonts
   /etc/ssl /etc/ca-certificates /etc/pki /etc/resolv.conf /etc/hosts /etc/nsswitch.conf
   /etc/passwd /etc/group /etc/services /etc/protocols /etc/gai.conf /etc/mime.types`.split(/\s+/);

/** Interpreters that a server may be written for: a script names them in its first line, and npx runs them. */
const INTERPRETERS = ['node', 'python3', 'python'];

/** A new namespace of each kind that needs no settings, and the end of the process with the gateway. */
const BASE_ARGS = `--unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try
   --die-with-parent --cap-drop ALL`.split(/\s+/);

/** Files by which root, inside of the sandbox too, changes settings of the kernel. */
const KERNEL_PATHS = ['/proc/sys', '/proc/sysrq-trigger', '/proc/irq', '/proc/bus', '/proc/fs'];

export interface SandboxOptions {
  readonly upstream: string;
  readonly bwrap: string;
  readonly cwd: string | undefined;
  readonly ownFiles: OwnFiles | undefined;
}

/** Files of the gateway that no sandbox shows. */
export interface OwnFiles {
  readonly configFile: string;
  /** Hidden inside of folders that the sandbox shows. */
  readonly stateDir: string;
}

/** Returns the error for a program that is not started, because it would have no sandbox or one that shows too much. */
export function noSandbox(upstream: string, message: string): GatewayError {
  return new GatewayError('upstream-unavailable', { upstream, message, executed: 'no', retryable: false });
}

/**
 * Returns the launch that runs `launch` in a sandbox of bubblewrap. Its home and `/tmp` are empty and in memory. Of the file system it sees
 * the programs of the system, the program itself and the packages of npx and uvx. It also sees its working directory, and what the config
 * names.
 *
 * @throws {GatewayError} `upstream-unavailable` if it would show the config file.
 * @see https://github.com/containers/bubblewrap
 */
export async function inSandbox(
  launch: Launch,
  sandbox: Sandbox,
  { upstream, bwrap, cwd, ownFiles }: SandboxOptions,
): Promise<Launch> {
  const { command, args, env } = launch;
  const home = env['HOME'] ?? '';
  const hasHome = home.startsWith('/') && home !== '/';
  const readable = [
    ...packageFolders(home, env).filter((folder) => existsSync(folder)),
    ...(await programFolders([command, ...INTERPRETERS], launch, home)),
    ...(cwd === undefined ? [] : [cwd]),
    ...sandbox.read,
  ];
  const shown = [...SYSTEM_PATHS, ...readable, ...sandbox.write];
  if (ownFiles !== undefined) refuseConfigIn(shown, ownFiles.configFile, upstream);
  const bindArgs = (option: string, paths: readonly string[]) => paths.flatMap((path) => [option, path, path]);
  const start = cwd ?? (hasHome ? home : '/tmp');
  const groups: readonly (readonly string[])[] = [
    BASE_ARGS,
    (await canDisableNamespaces(bwrap)) ? ['--disable-userns'] : [],
    sandbox.network ? [] : ['--unshare-net'],
    bindArgs('--ro-bind-try', SYSTEM_PATHS),
    ['--proc', '/proc'],
    bindArgs('--ro-bind-try', KERNEL_PATHS),
    ['--dev', '/dev', '--tmpfs', '/tmp'],
    hasHome ? ['--tmpfs', home] : [],
    bindArgs('--ro-bind', readable),
    bindArgs('--bind', sandbox.write),
    ownFiles === undefined ? [] : shown.flatMap((folder) => hidingArgs(folder, ownFiles.stateDir)),
    ['--chdir', start, '--', command],
    args,
  ];
  return { command: bwrap, args: groups.flat(), env, cwd };
}

/** Returns the folders with the packages that npx, which adds them to PATH, and uvx have installed. */
function packageFolders(home: string, env: Readonly<Record<string, string>>): readonly string[] {
  const programs = (env['PATH'] ?? '').split(delimiter).filter((folder) => folder.endsWith('/node_modules/.bin'));
  return [
    ...programs.map((folder) => dirname(folder)),
    env['UV_CACHE_DIR'] ?? join(home, '.cache/uv'),
    join(home, '.local/share/uv'),
    ...[env['UV_TOOL_DIR'], env['UV_PYTHON_INSTALL_DIR']].filter((folder) => folder !== undefined),
  ];
}

/** Resolves with the folders in which these programs are installed, as far as they are outside of the folders of the system. */
async function programFolders(
  commands: readonly string[],
  { env, cwd }: Launch,
  home: string,
): Promise<readonly string[]> {
  const found = await Promise.all(commands.map((command) => programFile(command, cwd, env['PATH'] ?? '')));
  const files = found.filter((file) => file !== undefined).flatMap((file) => [file, realpathSync(file)]);
  const folders = files.map((file) => installationOf(file, home));
  return [...new Set(folders)].filter((folder) => !SYSTEM_PATHS.some((path) => isWithin(folder, path)));
}

/** `/x/node-24/bin/node` → `/x/node-24`; the folder of the program if its parent has more than this program. */
function installationOf(file: string, home: string): string {
  const folder = dirname(file);
  const parent = dirname(folder);
  const isShared = parent === '/' || isWithin(home, parent);
  return basename(folder) === 'bin' && !isShared ? parent : folder;
}

/** Returns whether a path is a folder or inside of it. */
function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/**
 * Refuses to show the config file. It cannot be hidden inside of a folder: editors replace it, and a mount over a file ends when
 * another file gets its name.
 */
function refuseConfigIn(shown: readonly string[], configFile: string, upstream: string): void {
  const folder = dirname(configFile);
  const names = [join(existsSync(folder) ? realpathSync(folder) : folder, basename(configFile))];
  // The file may be a link, as in a ConfigMap.
  if (existsSync(configFile)) names.push(realpathSync(configFile));
  for (const path of shown.filter((one) => existsSync(one))) {
    const real = realpathSync(path);
    if (!names.some((name) => isWithin(name, real))) continue;
    const fault = `its sandbox would show ${path} with the config file of the gateway`;
    throw noSandbox(upstream, `${fault}; move the config file, or name narrower folders`);
  }
}

/** Returns the arguments that put an empty folder in place of the state directory, if it is inside of a folder. */
function hidingArgs(folder: string, stateDir: string): readonly string[] {
  if (!existsSync(folder) || !existsSync(stateDir)) return [];
  const real = realpathSync(folder);
  const hidden = realpathSync(stateDir);
  // The folder may be a link: the sandbox shows its files below the name of the link.
  return isWithin(hidden, real) ? ['--tmpfs', join(folder, relative(real, hidden))] : [];
}

/**
 * Resolves with whether a bubblewrap can forbid user namespaces in its sandboxes. It must know the option (0.8), and the system must let it
 * change the setting.
 */
function canDisableNamespaces(bwrap: string): Promise<boolean> {
  return getOrMake(probes, bwrap, () => isFulfilled(run(bwrap, PROBE, { timeout: PROBE_MS })));
}

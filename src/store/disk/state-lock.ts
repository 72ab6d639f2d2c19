import { isCode, systemCode } from '../../thrown.ts';
import { hash, randomInt, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { link, lstat, open, readdir, realpath, rm } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { StartError } from '../../errors.ts';
import { makeStateDir } from './state-file.ts';

/** Longest address of a Unix socket on every system: macOS takes 103 bytes, Linux 107. */
const MAX_ADDRESS_BYTES = 103;
/** Length of the longest socket name, including the slash before it. */
const NAME_BYTES = 41;

const ATTEMPTS = 50;
const LONGEST_PAUSE_MS = 50;

/** Error codes of a connection to a socket that no process listens on. */
const DEAD_SOCKET = new Set(['ECONNREFUSED', 'ENOENT', 'ENOTSOCK']);
/** Error codes for the creation of a socket on a file system without sockets. */
const NO_SOCKETS = new Set(['ENOTSUP', 'EOPNOTSUPP', 'EPERM', 'EINVAL']);

/** Exists while this process owns a state directory. It ends with the process, however the process ends. */
export interface StateLock {
  release(): Promise<void>;
}

/** A directory of sockets, and their addresses. */
interface SocketDir extends AsyncDisposable {
  readonly path: string;
  address(name: string): string;
}

/**
 * Makes this process the owner of a state directory. Returns undefined if another process owns it.
 *
 * The owner listens on a Unix socket in the directory; a process is alive if its socket accepts a connection. Sockets are named by numbers.
 * A new owner listens first, then takes the next number by a hard link, which only one process can create. Then it checks again for other
 * live processes. This replaces the socket of a killed process without ever affecting a live one.
 *
 * @throws if the directory cannot be written.
 */
export async function lockState(stateDir: string): Promise<StateLock | undefined> {
  if (process.platform === 'win32') return await lockPipe(stateDir);
  await using dir = await socketDir(stateDir);
  try {
    return await lockIn(dir);
  } catch (thrown) {
    if (!NO_SOCKETS.has(systemCode(thrown) ?? '')) throw thrown;
    await using elsewhere = await runtimeDir(stateDir);
    return await lockIn(elsewhere);
  }
}

/** Returns whether a process owns the state directory. */
export async function isStateLocked(stateDir: string): Promise<boolean> {
  if (process.platform === 'win32') return await isAlive(await pipeOf(stateDir));
  await using dir = await socketDir(stateDir);
  return await isAnyAlive(dir, await numbersIn(dir));
}

/** Returns the address of the named pipe that serves as the lock on Windows; a pipe leaves nothing behind. */
async function pipeOf(stateDir: string): Promise<string> {
  return `\\\\.\\pipe\\linkspan-${hash('sha256', await realpath(stateDir)).slice(0, 24)}`;
}

async function lockPipe(stateDir: string): Promise<StateLock | undefined> {
  try {
    const server = await listen(await pipeOf(stateDir));
    return { release: () => close(server) };
  } catch (thrown) {
    if (isCode(thrown, 'EADDRINUSE')) return undefined;
    throw thrown;
  }
}

async function listen(address: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen(address);
  await once(server, 'listening');
  server.unref();
  return server;
}

async function socketDir(stateDir: string): Promise<SocketDir> {
  const path = join(stateDir, 'owner');
  await makeStateDir(path);
  if (Buffer.byteLength(path) + NAME_BYTES <= MAX_ADDRESS_BYTES) return plainDir(path);
  if (process.platform !== 'linux') return await runtimeDir(stateDir);
  // The address refers to the open directory instead of its path, which may be of any length.
  const directory = await open(path, 'r');
  return {
    path,
    address: (name) => `/proc/self/fd/${directory.fd}/${name}`,
    [Symbol.asyncDispose]: () => directory.close(),
  };
}

/**
 * Returns a directory of this user, for state directories whose path is too long or whose file system has no sockets.
 */
async function runtimeDir(stateDir: string): Promise<SocketDir> {
  const name = hash('sha256', await realpath(stateDir)).slice(0, 12);
  const user = process.getuid?.();
  const base = process.env['XDG_RUNTIME_DIR'] ?? join(tmpdir(), `linkspan-${user}`);
  await makeStateDir(base);
  const { uid } = await lstat(base);
  if (uid !== user) throw new StartError(`${base} belongs to another user. Remove it, or set XDG_RUNTIME_DIR`);
  const path = join(base, name);
  await makeStateDir(path);
  return plainDir(path);
}

function plainDir(path: string): SocketDir {
  return { path, address: (name) => join(path, name), [Symbol.asyncDispose]: async () => undefined };
}

async function lockIn(dir: SocketDir): Promise<StateLock | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const numbers = await numbersIn(dir);
    if (await isAnyAlive(dir, numbers)) return undefined;
    const name = String(Math.max(0, ...numbers.map(Number)) + 1);
    const server = await listenAs(dir, name);
    if (server === undefined) continue;
    const others = (await numbersIn(dir)).filter((other) => other !== name);
    if (!(await isAnyAlive(dir, others))) {
      for (const other of others) await rm(join(dir.path, other), { force: true });
      return { release: () => release(server, join(dir.path, name)) };
    }
    await release(server, join(dir.path, name));
    // Two processes that see each other both step back; the random pause keeps them from doing so for ever.
    await delay(randomInt(LONGEST_PAUSE_MS));
  }
  return undefined;
}

/**
 * Listens on a socket of this name, which becomes visible only after it accepts connections. Returns undefined if the
 * name is taken.
 */
async function listenAs(dir: SocketDir, name: string): Promise<Server | undefined> {
  const draft = `new-${randomUUID()}`;
  const server = await listen(dir.address(draft));
  try {
    await link(join(dir.path, draft), join(dir.path, name));
    return server;
  } catch (thrown) {
    await close(server);
    if (isCode(thrown, 'EEXIST')) return undefined;
    throw thrown;
  } finally {
    await rm(join(dir.path, draft), { force: true });
  }
}

async function release(server: Server, path: string): Promise<void> {
  // On a disk that has become read-only it stays, and the next owner finds a dead socket.
  await rm(path, { force: true }).catch((thrown: unknown) => {
    if (systemCode(thrown) === undefined) throw thrown;
  });
  await close(server);
}

async function close(server: Server): Promise<void> {
  const promise = once(server, 'close');
  server.close();
  await promise;
}

async function numbersIn(dir: SocketDir): Promise<readonly string[]> {
  return (await readdir(dir.path)).filter((name) => /^\d{1,15}$/.test(name));
}

async function isAnyAlive(dir: SocketDir, names: readonly string[]): Promise<boolean> {
  const alive = await Promise.all(names.map((name) => isAlive(dir.address(name))));
  return alive.includes(true);
}

/** Returns whether a process listens on a socket. Unknown errors count as yes. */
function isAlive(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => resolve(!DEAD_SOCKET.has(systemCode(error) ?? '')));
  });
}

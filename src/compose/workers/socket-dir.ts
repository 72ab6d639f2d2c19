import { messageOf, systemCode } from '../../thrown.ts';
import { once } from 'node:events';
import { lstat, mkdtemp, readdir, rm, rmdir, stat, unlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';

const PREFIX = 'workers-';
/** The characters that `mkdtemp` adds to a prefix. */
const ADDED = /^[A-Za-z0-9]{6}$/;
/** Longest path of a folder with the sockets of workers: the address of a socket has about 100 bytes. */
const MAX_PATH_BYTES = 70;

/** The folder of the sockets of workers, which only this user can enter. */
export class SocketDir implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /**
   * Makes a folder below the state directory, if this process owns it and its path is short enough. Else it is below the folder for
   * temporary files, as on a full disk or a file system without sockets.
   *
   * @throws {StartError} if no such folder can be made.
   */
  static async open(stateDir: string, ownsState: boolean): Promise<SocketDir> {
    try {
      if (ownsState && Buffer.byteLength(stateDir) <= MAX_PATH_BYTES) {
        const dir = await SocketDir.#make(stateDir, PREFIX, true).catch(ifSystemError);
        if (dir !== undefined) return dir;
      }
      const prefix = `linkspan-${PREFIX}${ownsState ? await nameOf(stateDir) : ''}`;
      return await SocketDir.#make(tmpdir(), prefix, ownsState);
    } catch (thrown) {
      const why = messageOf(thrown);
      throw new StartError(`the sockets of workers need a folder (gateway.workers): ${why}`, { cause: thrown });
    }
  }

  /** Makes a folder in which sockets can be. */
  static async #make(parent: string, prefix: string, ownsState: boolean): Promise<SocketDir> {
    // A parent that was killed has left its folder behind.
    if (ownsState) await removeOld(parent, prefix);
    // mkdtemp lets nobody else enter.
    const dir = new SocketDir(await mkdtemp(join(parent, prefix)));
    try {
      const server = createServer().listen(join(dir.path, '0.sock'));
      await once(server, 'listening');
      server.close();
      await once(server, 'close');
      return dir;
    } catch (thrown) {
      await dir[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

/** Returns undefined for an error of the system. @throws any other one. */
function ifSystemError(thrown: unknown): undefined {
  if (systemCode(thrown) === undefined) throw thrown;
}

/** Returns a short name of a state directory, which no other one on this machine has. */
async function nameOf(stateDir: string): Promise<string> {
  const { dev, ino } = await stat(stateDir);
  return `${dev}-${ino}-`;
}

/** Removes the folders that parents have left behind, and no file of anybody else: an operator may keep files beside them. */
async function removeOld(parent: string, prefix: string): Promise<void> {
  const folders = await readdir(parent, { withFileTypes: true }).catch((thrown: unknown) => {
    // A folder for temporary files may be closed to readers.
    if (systemCode(thrown) === undefined) throw thrown;
    return [];
  });
  for (const folder of folders) {
    const isNamedSo = folder.name.startsWith(prefix) && ADDED.test(folder.name.slice(prefix.length));
    if (!folder.isDirectory() || !isNamedSo) continue;
    const path = join(parent, folder.name);
    try {
      // Another user could replace its own folder by a link while it is read.
      if ((await lstat(path)).uid !== process.geteuid?.()) continue;
      const entries = await readdir(path, { withFileTypes: true });
      const isOurs = entries.every((entry) => entry.isSocket() && entry.name.endsWith('.sock'));
      if (!isOurs) continue;
      for (const { name } of entries) await unlink(join(path, name));
      await rmdir(path);
    } catch (thrown) {
      // A folder that cannot be removed does no harm.
      if (systemCode(thrown) === undefined) throw thrown;
    }
  }
}

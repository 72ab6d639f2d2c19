import { messageOf, systemCode } from '../../thrown.ts';
import { mkdtemp, readdir, rm, rmdir, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';

const PREFIX = 'workers-';
/** The names that `mkdtemp` makes of {@link PREFIX}. */
const OLD = /^workers-[A-Za-z0-9]{6}$/;
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
   * temporary files.
   *
   * @throws {StartError} if no such folder can be made.
   */
  static async open(stateDir: string, ownsState: boolean): Promise<SocketDir> {
    const isBelowState = ownsState && Buffer.byteLength(stateDir) <= MAX_PATH_BYTES;
    // A parent that was killed has left its folder behind.
    if (ownsState) await removeOld(stateDir);
    const base = isBelowState ? join(stateDir, PREFIX) : join(tmpdir(), `linkspan-${PREFIX}`);
    try {
      // mkdtemp lets nobody else enter.
      return new SocketDir(await mkdtemp(base));
    } catch (thrown) {
      const why = messageOf(thrown);
      throw new StartError(`the sockets of workers need a folder (gateway.workers): ${why}`, { cause: thrown });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

/** Removes the folders that parents have left behind, and no file of anybody else: an operator may keep files beside them. */
async function removeOld(stateDir: string): Promise<void> {
  for (const folder of await readdir(stateDir, { withFileTypes: true })) {
    if (!folder.isDirectory() || !OLD.test(folder.name)) continue;
    const path = join(stateDir, folder.name);
    try {
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

import { messageOf } from '../../thrown.ts';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StartError } from '../../errors.ts';

const PREFIX = 'workers-';
/** Longest path of a folder with the sockets of workers: the address of a socket has about 100 bytes. */
const MAX_PATH_BYTES = 70;

/** The folder of the sockets of workers, which only this user can enter. */
export class SocketDir implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /**
   * Makes a folder below the state directory, if this process owns it and its path is short enough; else below the folder for temporary files.
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

async function removeOld(stateDir: string): Promise<void> {
  for (const name of await readdir(stateDir)) {
    if (name.startsWith(PREFIX)) await rm(join(stateDir, name), { recursive: true, force: true });
  }
}

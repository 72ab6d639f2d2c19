import { join } from 'node:path';
import { StartError } from '../errors.ts';
import { readOwnFile, REFUSED_MODE } from '../store/disk/own-file.ts';
import { makeStateDir, replaceFile } from '../store/disk/state-file.ts';
import { lockState, type StateLock } from '../store/disk/state-lock.ts';
import type { FoundRecords } from './audit-sink.ts';
import { type AuditKey, NO_MAC } from './chain.ts';
import { readHead } from './head.ts';

const FILE_LIMIT_BYTES = 65_536;

/** The signed head of records that a next process cannot read back, in the state directory. One process at a time can open it. */
export class StateHead {
  /** The state of the chain by the head of the process before. */
  readonly found: FoundRecords;
  readonly #path: string;
  readonly #lock: StateLock;

  private constructor(path: string, lock: StateLock, found: FoundRecords) {
    this.#path = path;
    this.#lock = lock;
    this.found = found;
  }

  /**
   * Opens the head of one kind of destination.
   *
   * @param destination the word in the names of its files: `audit-<destination>.head`.
   * @throws {StartError} if another process uses the state directory for it, and {@link RefusedFileError}.
   */
  static async open(stateDir: string, destination: 'stdout' | 'otlp', keys: readonly AuditKey[]): Promise<StateHead> {
    await makeStateDir(stateDir);
    const lock = await lockState(join(stateDir, `audit-${destination}.lock`));
    if (lock === undefined) {
      throw new StartError(
        `another process with the state directory ${stateDir} writes an audit log to ${destination}`,
      );
    }
    try {
      const path = join(stateDir, `audit-${destination}.head`);
      const text = await readOwnFile(path, {
        maxBytes: FILE_LIMIT_BYTES,
        refusedMode: REFUSED_MODE.writtenByAll,
        remedy:
          'Find out who changed it before you remove it: without it, missing records at the end cannot be noticed.',
      });
      const head = text === undefined ? undefined : readHead(keys, text);
      const { seq, mac, oldest, confirmed } = head ?? { seq: 0, mac: NO_MAC, oldest: 1 };
      const isForged = text !== undefined && head === undefined;
      return new StateHead(path, lock, { seq, mac, oldest, confirmed, cutBytes: 0, headSeq: seq, isForged });
    } catch (thrown) {
      await lock.release();
      throw thrown;
    }
  }

  async save(text: string): Promise<void> {
    await replaceFile(this.#path, [text]);
  }

  /** Lets another process open it. */
  async release(): Promise<void> {
    await this.#lock.release();
  }
}

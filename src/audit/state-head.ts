import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { StartError } from '../errors.ts';
import { isCode, makeStateDir, replaceFile } from '../store/disk/state-file.ts';
import { lockState, type StateLock } from '../store/disk/state-lock.ts';
import type { FoundRecords } from './audit-sink.ts';
import { type AuditKey, NO_MAC } from './chain.ts';
import { readHead } from './head.ts';

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
   * @throws {StartError} if another process uses the state directory for it.
   */
  static async open(stateDir: string, destination: 'stdout' | 'otlp', keys: readonly AuditKey[]): Promise<StateHead> {
    await makeStateDir(stateDir);
    const lock = await lockState(join(stateDir, `audit-${destination}.lock`));
    if (lock === undefined) {
      throw new StartError(
        `another process with the state directory ${stateDir} writes an audit log to ${destination}`,
      );
    }
    const path = join(stateDir, `audit-${destination}.head`);
    const text = await readFile(path, 'utf8').catch((thrown: unknown) => {
      if (isCode(thrown, 'ENOENT')) return undefined;
      throw thrown;
    });
    const head = text === undefined ? undefined : readHead(keys, text);
    const { seq, mac, oldest, confirmed } = head ?? { seq: 0, mac: NO_MAC, oldest: 1 };
    const isForged = text !== undefined && head === undefined;
    return new StateHead(path, lock, { seq, mac, oldest, confirmed, cutBytes: 0, headSeq: seq, isForged });
  }

  async save(text: string): Promise<void> {
    await replaceFile(this.#path, [text]);
  }

  /** Lets another process open it. */
  async release(): Promise<void> {
    await this.#lock.release();
  }
}

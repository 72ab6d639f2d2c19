import { isCode, systemCode, undefinedIfMissing } from '../thrown.ts';
import { type FileHandle, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { AuditConfig } from '../config/values/config.ts';
import { StartError } from '../errors.ts';
import { ownUser, writeFault } from '../store/disk/path-fault.ts';
import { makeStateDir, replaceFile } from '../store/disk/state-file.ts';
import { lockState, type StateLock } from '../store/disk/state-lock.ts';
import type { AuditSink, FoundRecords } from './audit-sink.ts';
import { type AuditKey, isChained, NO_MAC } from './chain.ts';
import { type FileTail, readTail } from './file-tail.ts';
import { readHead } from './head.ts';
import { ownFilesOf, renamedFile } from './renamed-files.ts';

/** Returns the path of the signed head of a file of records. */
export function headOf(path: string): string {
  return `${path}.head`;
}

/** A file of records that is renamed when it is full. One process at a time can open it. */
export class FileSink implements AuditSink {
  readonly found: FoundRecords;
  readonly savesHeadFirst = false;
  /** Lines of a failed attempt are removed. */
  readonly isInDoubt = false;
  readonly #path: string;
  readonly #limits: FileLimits;
  readonly #lock: StateLock;
  readonly #keys: readonly AuditKey[];
  #file: FileHandle;
  /** The name that the sink has given its file: that of a renamed one while no other file can be opened. */
  #name: string;
  /** Bytes of whole records. */
  #size: number;
  /** Number of the first record in the file; undefined while it is empty. */
  #firstSeq: number | undefined;
  #isTorn = false;

  private constructor(
    path: string,
    limits: FileLimits,
    keys: readonly AuditKey[],
    lock: StateLock,
    file: FileHandle,
    opened: Opened,
  ) {
    this.#path = path;
    this.#name = path;
    this.#keys = keys;
    this.#limits = limits;
    this.#lock = lock;
    this.#file = file;
    this.#size = opened.tail.wholeBytes;
    this.#firstSeq = opened.tail.firstSeq;
    this.found = opened.found;
  }

  /**
   * Opens a file for appending. Removes an unfinished record at its end.
   *
   * @throws {StartError} if another process writes the file, it is no audit log, or the system refuses it.
   */
  static async open(path: string, limits: FileLimits, keys: readonly AuditKey[]): Promise<FileSink> {
    try {
      await makeStateDir(dirname(path));
      const lock = await lockState(`${path}.lock`);
      if (lock === undefined) {
        throw new StartError(
          `another process writes the audit file ${path}. Give each process a gateway.audit.file of its own`,
        );
      }
      let file: FileHandle | undefined;
      try {
        file = await open(path, 'a+', 0o600);
        return new FileSink(path, limits, keys, lock, file, await findRecords(path, file, keys));
      } catch (thrown) {
        await Promise.allSettled([file?.close(), lock.release()]);
        throw thrown;
      }
    } catch (thrown) {
      const fault = writeFault(thrown, 'its directory does not exist and cannot be made');
      if (fault === undefined) throw thrown;
      throw new StartError(
        `the audit file ${path} cannot be used: ${fault}. Set gateway.audit.file to a file that ${ownUser()} can write`,
        { cause: thrown },
      );
    }
  }

  async append(lines: string): Promise<void> {
    if (this.#isTorn) await this.#file.truncate(this.#size);
    this.#isTorn = true;
    const bytes = Buffer.from(lines);
    try {
      await this.#file.appendFile(bytes);
    } catch (thrown) {
      // A partly written record would take up the space that the next attempt needs.
      this.#isTorn = await this.#file.truncate(this.#size).then(
        () => false,
        () => true,
      );
      throw thrown;
    }
    this.#isTorn = false;
    this.#size += bytes.length;
    const [, seq] = this.#firstSeq === undefined ? (/^\{"seq":(\d+),/.exec(lines) ?? []) : [];
    if (seq !== undefined) this.#firstSeq = Number(seq);
  }

  sync(): Promise<void> {
    return this.#file.datasync();
  }

  async saveHead(text: string): Promise<void> {
    await replaceFile(headOf(this.#path), [text]);
  }

  isFull(bytes: number): boolean {
    return this.#size > 0 && this.#size + bytes > this.#limits.maxBytes;
  }

  async isInPlace(): Promise<boolean> {
    try {
      const [there, ours] = await Promise.all([stat(this.#name), this.#file.stat()]);
      return there.ino === ours.ino && there.dev === ours.dev;
    } catch (thrown) {
      if (isCode(thrown, 'ENOENT')) return false;
      throw thrown;
    }
  }

  async rotate(firstSeq: number, beforeRemoval: (oldest: number) => Promise<void>): Promise<void> {
    const before = this.#file;
    // Records of a failed write have their numbers again in the next file.
    if (this.#isTorn) await before.truncate(this.#size);
    await before.datasync();
    this.#file = await this.#openNext();
    // If a later step fails, the next attempt must not rename the new file over the one before.
    this.#firstSeq = undefined;
    this.#isTorn = false;
    this.#size = (await this.#file.stat()).size;
    await before.close();
    // Files that somebody else has put there do not push out records.
    const renamed = await ownFilesOf(this.#path, this.#keys);
    const removed = renamed.slice(0, Math.max(0, renamed.length - this.#limits.maxFiles));
    if (removed.length > 0) await beforeRemoval(renamed[removed.length]?.firstSeq ?? firstSeq);
    for (const { path } of removed) await rm(path, { force: true });
  }

  /** Renames the file, and opens a new one. If that fails, the file gets its name back if it can. */
  async #openNext(): Promise<FileHandle> {
    const isFound = this.#firstSeq !== undefined && (await this.isInPlace());
    // An earlier attempt may have renamed it already.
    if (isFound && this.#name === this.#path) await this.#rename(renamedFile(this.#path, this.#firstSeq ?? 0));
    try {
      const next = await open(this.#path, 'a+', 0o600);
      this.#name = this.#path;
      return next;
    } catch (thrown) {
      if (this.#name !== this.#path) await this.#rename(this.#path).catch(() => undefined);
      const code = systemCode(thrown);
      if (code === undefined) throw thrown;
      throw new Error(
        `a new audit file ${this.#path} cannot be opened (${code}): check free space, the rights of its directory, and ulimit -n. Records wait until it can`,
        { cause: thrown },
      );
    }
  }

  async #rename(name: string): Promise<void> {
    await rename(this.#name, name);
    this.#name = name;
  }

  async close(): Promise<void> {
    await this.#file.close();
    await this.#lock.release();
  }
}

/** The bounds of a {@link FileSink}. */
type FileLimits = Pick<AuditConfig, 'maxBytes' | 'maxFiles'>;

/** A file that was opened, and the records that were found in it or before it. */
interface Opened {
  readonly tail: FileTail;
  readonly found: FoundRecords;
}

/** Finds the last record in the file, or in the one that was renamed last, and compares it with the signed head. */
async function findRecords(path: string, file: FileHandle, keys: readonly AuditKey[]): Promise<Opened> {
  const tail = await readTail(file);
  if (tail.isForeign) {
    throw new StartError(
      `the audit file ${path} does not begin with a record of an audit log. Name another one in gateway.audit.file, or move it away`,
    );
  }
  if (tail.cutBytes > 0) await file.truncate(tail.wholeBytes);
  const headText = await readFile(headOf(path), 'utf8').catch(undefinedIfMissing);
  const head = headText === undefined ? undefined : readHead(keys, headText);
  const end = tail.wholeBytes > 0 ? tail : await tailOfRenamed(path, keys);
  const { last, macBefore = NO_MAC, wholeBytes = 0 } = end ?? {};
  // The first head is older than the first record, so records without one have lost it.
  const isHeadForged = head === undefined && (headText !== undefined || wholeBytes > 0);
  const isChainedLast = last !== undefined && keys.some((key) => isChained(key, macBefore, last));
  const found = {
    seq: last?.seq ?? 0,
    mac: last?.mac ?? NO_MAC,
    oldest: head?.oldest ?? 1,
    cutBytes: tail.cutBytes,
    headSeq: head?.seq ?? 0,
    isForged: isHeadForged || (wholeBytes > 0 && !isChainedLast),
  };
  return { tail, found };
}

async function tailOfRenamed(path: string, keys: readonly AuditKey[]): Promise<FileTail | undefined> {
  const newest = (await ownFilesOf(path, keys)).at(-1);
  if (newest === undefined) return undefined;
  await using file = await open(newest.path, 'r');
  return await readTail(file);
}

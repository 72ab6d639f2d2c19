import { isCode, isFulfilled, systemCode } from '../../thrown.ts';
import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { appendFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { openOwnFile, REFUSED_MODE } from './own-file.ts';
import { replaceFile } from './state-file.ts';

/** A shorter journal is not rewritten. */
const MIN_REWRITE_BYTES = 256 * 1_024;
/** The journal is rewritten when it is this many times as long as the state that it describes. */
const REWRITE_FACTOR = 2;
/**
 * Lines that wait for a disk that cannot be written. With more, they are dropped, and the whole file is rewritten
 * later.
 */
const MAX_WAITING_BYTES = 1_024 * 1_024;

/** Reserved disk space, so that ends of sessions can still be written when the disk is full. */
const RESERVE_BYTES = 64 * 1_024;
const DISK_IS_FULL = new Set(['ENOSPC', 'EDQUOT']);

const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;

export interface JournalEvents {
  onWriteFailed(error: unknown): void;
  /** Called when writing begins to fail. The journal retries on its own. */
  onFailing(error: unknown): void;
  /** Called when everything is written again. */
  onRecovered(): void;
}

/**
 * A file of lines that describe changes of a state kept in memory. One process at a time may use it.
 *
 * A reserve file beside it takes up disk space. It is removed to make room for ends of sessions when the disk is full.
 *
 * The journal is not synced after each line: written lines survive the process, but a power failure may lose the last
 * seconds.
 */
export class Journal implements AsyncDisposable {
  readonly #path: string;
  readonly #reservePath: string;
  readonly #state: () => Iterable<string>;
  readonly #events: JournalEvents;
  #size = 0;
  /** True if the file has been there. */
  #exists = false;
  #rewriteAt = MIN_REWRITE_BYTES;
  /** Lines that are not written yet. */
  #waiting: string[] = [];
  #waitingBytes = 0;
  /** True if the file describes the state only after it is rewritten. */
  #needsRewrite = false;
  /** True if the file may end in the middle of a line. */
  #isTorn = false;
  #batch: PromiseWithResolvers<boolean> | undefined;
  #writing: Promise<void> | undefined;
  #hasReserve = false;
  #failure: unknown;
  #retryMs = FIRST_RETRY_MS;
  #retry: NodeJS.Timeout | undefined;

  /** @param state returns the lines that describe the whole state, which may change while they are written. */
  constructor(path: string, state: () => Iterable<string>, events: JournalEvents) {
    this.#path = path;
    this.#reservePath = `${path}.reserve`;
    this.#state = state;
    this.#events = events;
  }

  /** The last error; undefined if everything is written and the reserve exists. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Yields the lines of the file. The last one may be incomplete. @throws {RefusedFileError} if other users can have written it. */
  async *read(): AsyncGenerator<string> {
    await using file = await openOwnFile(this.#path, {
      maxBytes: Infinity,
      refusedMode: REFUSED_MODE.writtenByAll,
      remedy: 'Remove it: every session then ends.',
    });
    if (file === undefined) return;
    this.#exists = true;
    // Parts of an unfinished line, which can be much longer than one chunk.
    let pieces: string[] = [];
    for await (const chunk of file.createReadStream({ encoding: 'utf8', autoClose: false })) {
      const [first = '', ...lines] = String(chunk).split('\n');
      pieces.push(first);
      const last = lines.pop();
      if (last === undefined) continue;
      yield pieces.join('');
      yield* lines;
      pieces = [last];
    }
    const rest = pieces.join('');
    yield rest;
    this.#isTorn = rest !== '';
    this.#size = (await file.stat()).size;
  }

  /** Rewrites the file from the state. Keeps the old file if the disk has no room for a second one. */
  async compact(): Promise<void> {
    this.#rewriteAt = 0;
    await this.#flush();
  }

  /** Appends a line. Resolves with false if it could not be written at once; then it is retried later. */
  append(line: string): Promise<boolean> {
    if (!this.#needsRewrite) {
      this.#waiting.push(line);
      this.#waitingBytes += Buffer.byteLength(line) + 1;
      if (this.#waitingBytes > MAX_WAITING_BYTES && this.#failure !== undefined) this.#needsRewrite = true;
    }
    return this.#flush();
  }

  /** Writes the waiting lines, one write at a time. Lines that arrive meanwhile form the next write. */
  #flush(): Promise<boolean> {
    const batch = (this.#batch ??= Promise.withResolvers<boolean>());
    this.#writing ??= this.#writeBatches();
    return batch.promise;
  }

  async #writeBatches(): Promise<void> {
    while (this.#batch !== undefined) {
      const batch = this.#batch;
      this.#batch = undefined;
      batch.resolve(await this.#write());
    }
    this.#writing = undefined;
  }

  async #write(): Promise<boolean> {
    const lines = this.#waiting;
    const bytes = this.#waitingBytes;
    this.#waiting = [];
    this.#waitingBytes = 0;
    try {
      await this.#writeLines(lines, bytes);
    } catch (thrown) {
      this.#fail(thrown);
      if (await this.#writeAgain(lines, bytes, thrown)) return true;
      if (!this.#needsRewrite) {
        this.#waiting = [...lines, ...this.#waiting];
        this.#waitingBytes += bytes;
      }
      return false;
    }
    await this.#reserve();
    return true;
  }

  async #writeLines(lines: readonly string[], bytes: number): Promise<void> {
    if (this.#needsRewrite) await this.#replace();
    else if (!(await this.#compacted(bytes)) && lines.length > 0) await this.#append(lines, bytes);
  }

  /** Writes again without the reserve, if the disk is full or the file is gone. Returns false if that fails too. */
  async #writeAgain(lines: readonly string[], bytes: number, thrown: unknown): Promise<boolean> {
    const isFull = DISK_IS_FULL.has(systemCode(thrown) ?? '');
    if (!this.#hasReserve || !(isFull || isCode(thrown, 'ENOENT'))) return false;
    this.#hasReserve = false;
    try {
      await rm(this.#reservePath, { force: true });
      await this.#writeLines(lines, bytes);
      return true;
    } catch {
      return false;
    }
  }

  /** Creates the reserve if it is missing. The journal counts as failing while there is no room for the reserve. */
  async #reserve(): Promise<void> {
    if (!this.#hasReserve) {
      try {
        await writeFile(this.#reservePath, randomBytes(RESERVE_BYTES), { mode: 0o600 });
        this.#hasReserve = true;
      } catch (thrown) {
        await rm(this.#reservePath, { force: true }).catch(() => undefined);
        this.#fail(thrown);
        return;
      }
    }
    if (this.#failure !== undefined) this.#recover();
  }

  /**
   * Rewrites a file that would become too long. Returns false if it is short enough, or if the disk has no room for a
   * second file.
   */
  async #compacted(bytes: number): Promise<boolean> {
    if (this.#size + bytes < this.#rewriteAt) return false;
    try {
      await this.#replace();
      return true;
    } catch {
      // If the file cannot be appended to either, the caller reports it.
      this.#needsRewrite = false;
      this.#rewriteAt = Math.max(MIN_REWRITE_BYTES, REWRITE_FACTOR * (this.#size + bytes));
      return false;
    }
  }

  async #replace(): Promise<void> {
    // Lines appended from here on may be part of the state already, and are then written twice.
    this.#needsRewrite = false;
    try {
      this.#size = await replaceFile(
        this.#path,
        Iterator.from(this.#state()).map((line) => `${line}\n`),
      );
    } catch (thrown) {
      this.#needsRewrite = true;
      throw thrown;
    }
    this.#exists = true;
    this.#isTorn = false;
    this.#rewriteAt = Math.max(MIN_REWRITE_BYTES, REWRITE_FACTOR * this.#size);
  }

  async #append(lines: readonly string[], bytes: number): Promise<void> {
    // Without its whole length, the next failure would cut off written lines.
    if (this.#isTorn) this.#size = (await stat(this.#path).catch(() => undefined))?.size ?? this.#size;
    const text = `${this.#isTorn ? '\n' : ''}${lines.join('\n')}\n`;
    try {
      // A file that is gone is not begun anew: it would lack the earlier lines.
      const flag = this.#exists ? constants.O_APPEND | constants.O_WRONLY : 'a';
      await appendFile(this.#path, text, { mode: 0o600, flag });
    } catch (thrown) {
      if (this.#exists && isCode(thrown, 'ENOENT')) this.#needsRewrite = true;
      // A partly written text would take up the space that the next attempt needs. An unfinished line before it stays.
      const isCut = await isFulfilled(truncate(this.#path, this.#size));
      this.#isTorn ||= !isCut;
      throw thrown;
    }
    this.#exists = true;
    this.#size += bytes + (this.#isTorn ? 1 : 0);
    this.#isTorn = false;
  }

  #fail(thrown: unknown): void {
    this.#events.onWriteFailed(thrown);
    const isFirst = this.#failure === undefined;
    this.#failure = thrown;
    if (isFirst) this.#events.onFailing(thrown);
    if (this.#retry !== undefined) return;
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      void this.#flush();
    }, this.#retryMs);
    this.#retry.unref();
    this.#retryMs = Math.min(2 * this.#retryMs, LAST_RETRY_MS);
  }

  #recover(): void {
    this.#failure = undefined;
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.#retryMs = FIRST_RETRY_MS;
    this.#events.onRecovered();
  }

  /** Writes the waiting lines, with one more attempt after a failure. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
    if (this.#failure !== undefined) await this.#flush();
    clearTimeout(this.#retry);
  }
}

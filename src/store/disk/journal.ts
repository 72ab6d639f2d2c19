import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { isCode, replaceFile, systemCode } from './state-file.ts';

/** A journal shorter than this is not rewritten. */
const MIN_REWRITE_BYTES = 256 * 1_024;
/** It is rewritten when it is so many times as long as what it describes. */
const REWRITE_FACTOR = 2;
/** Lines that wait for a disk that cannot be written. Beyond that they are dropped, and the whole file is written instead. */
const MAX_WAITING_BYTES = 1_024 * 1_024;

/** Kept on the disk, so that there is room for ends when nothing else is left. */
const RESERVE_BYTES = 64 * 1_024;
const DISK_IS_FULL = new Set(['ENOSPC', 'EDQUOT']);

const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;

export interface JournalEvents {
  writeFailed(error: unknown): void;
  /** Changes cannot be written from now on. It is tried again and again. */
  failing(error: unknown): void;
  /** Everything is written again. */
  recovered(): void;
}

/**
 * A file of lines that describe the changes of a state kept in memory, one process at a time.
 *
 * Beside it lies a reserve, a file of no use but its size: it makes room for the ends of sessions when the disk is full.
 *
 * The journal is not forced to the disk at each line: what was written survives the process, but a machine that loses power may lose
 * the last seconds.
 */
export class Journal implements AsyncDisposable {
  readonly #path: string;
  readonly #reservePath: string;
  readonly #state: () => Iterable<string>;
  readonly #events: JournalEvents;
  #size = 0;
  #rewriteAt = MIN_REWRITE_BYTES;
  /** Lines not written yet. */
  #waiting: string[] = [];
  #waitingBytes = 0;
  /** The file does not describe the state until it is rewritten. */
  #needsRewrite = false;
  /** The file may end in the middle of a line. */
  #isTorn = false;
  #batch: PromiseWithResolvers<boolean> | undefined;
  #writing: Promise<void> | undefined;
  #hasReserve = false;
  #failure: unknown;
  #retryMs = FIRST_RETRY_MS;
  #retry: NodeJS.Timeout | undefined;

  /** @param state returns the lines that describe the whole state. It may change while they are written. */
  constructor(path: string, state: () => Iterable<string>, events: JournalEvents) {
    this.#path = path;
    this.#reservePath = `${path}.reserve`;
    this.#state = state;
    this.#events = events;
  }

  /** The last error, undefined when everything is written and the reserve is there. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Yields the lines of the file, of which the last may be torn. */
  async *read(): AsyncGenerator<string> {
    // The beginning of a line, in pieces: a line can be much longer than what is read at once.
    let pieces: string[] = [];
    try {
      for await (const chunk of createReadStream(this.#path, 'utf8')) {
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
      this.#size = (await stat(this.#path)).size;
    } catch (thrown) {
      if (!isCode(thrown, 'ENOENT')) throw thrown;
    }
  }

  /** Replaces the file by the state. Where there is no room for a second file, the old one is kept. */
  async compact(): Promise<void> {
    this.#rewriteAt = 0;
    await this.#flush();
  }

  /** Adds a line. Resolves with false when it could not be written at once, and is tried again later. */
  append(line: string): Promise<boolean> {
    if (!this.#needsRewrite) {
      this.#waiting.push(line);
      this.#waitingBytes += Buffer.byteLength(line) + 1;
      if (this.#waitingBytes > MAX_WAITING_BYTES && this.#failure !== undefined) this.#needsRewrite = true;
    }
    return this.#flush();
  }

  /** Writes what waits, one write at a time: lines that come meanwhile make the next one. */
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
      if (await this.#writeIntoReserve(lines, bytes, thrown)) return true;
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

  /** Gives up the reserve and writes again. Returns false when that does not help either. */
  async #writeIntoReserve(lines: readonly string[], bytes: number, thrown: unknown): Promise<boolean> {
    if (!this.#hasReserve || !DISK_IS_FULL.has(systemCode(thrown) ?? '')) return false;
    this.#hasReserve = false;
    try {
      await rm(this.#reservePath, { force: true });
      await this.#writeLines(lines, bytes);
      return true;
    } catch {
      return false;
    }
  }

  /** Makes the reserve, if it is missing. While there is no room for it, the journal is failing. */
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

  /** Rewrites a file that would become too long. Returns false where it is short enough, or there is no room for a second one. */
  async #compacted(bytes: number): Promise<boolean> {
    if (this.#size + bytes < this.#rewriteAt) return false;
    try {
      await this.#replace();
      return true;
    } catch {
      // If the file cannot be written either, the caller says so.
      this.#needsRewrite = false;
      this.#rewriteAt = Math.max(MIN_REWRITE_BYTES, REWRITE_FACTOR * (this.#size + bytes));
      return false;
    }
  }

  async #replace(): Promise<void> {
    // Lines that are added from here on may be in the state already, and are written once more.
    this.#needsRewrite = false;
    try {
      this.#size = await replaceFile(this.#path, withLineEnds(this.#state()));
    } catch (thrown) {
      this.#needsRewrite = true;
      throw thrown;
    }
    this.#isTorn = false;
    this.#rewriteAt = Math.max(MIN_REWRITE_BYTES, REWRITE_FACTOR * this.#size);
  }

  async #append(lines: readonly string[], bytes: number): Promise<void> {
    const text = `${this.#isTorn ? '\n' : ''}${lines.join('\n')}\n`;
    try {
      await appendFile(this.#path, text, { mode: 0o600 });
    } catch (thrown) {
      // A part of it may have been written, and would take the room of the next try.
      this.#isTorn = await truncate(this.#path, this.#size).then(
        () => false,
        () => true,
      );
      throw thrown;
    }
    this.#size += bytes + (this.#isTorn ? 1 : 0);
    this.#isTorn = false;
  }

  #fail(thrown: unknown): void {
    this.#events.writeFailed(thrown);
    if (this.#failure === undefined) this.#events.failing(thrown);
    this.#failure = thrown;
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
    this.#events.recovered();
  }

  /** Writes what waits, once more if need be. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
    if (this.#failure !== undefined) await this.#flush();
    clearTimeout(this.#retry);
  }
}

function* withLineEnds(lines: Iterable<string>): Generator<string> {
  for (const line of lines) yield `${line}\n`;
}
